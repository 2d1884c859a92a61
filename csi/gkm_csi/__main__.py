"""Start the program `gkm-csi`; import only the standard library until its dependencies are known to be installed."""

import sys

from gkm.hoststate.extras import needed


def main() -> int:
    """Run the program."""
    with needed("gkm-csi", "csi"):
        from gkm_csi.main import main as run  # noqa: PLC0415 -- its imports may be missing

        return run()


if __name__ == "__main__":
    sys.exit(main())
