"""Starts the program `gkm-csi`; standard library only until it is known that its dependencies are there."""

import sys

from gkm.hoststate.extras import needed


def main() -> int:
    """Run the program."""
    with needed("gkm-csi", "csi"):
        from gkm_csi.main import main as run  # noqa: PLC0415 -- may be missing what it imports

        return run()


if __name__ == "__main__":
    sys.exit(main())
