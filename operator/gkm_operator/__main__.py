"""Starts the program `gkm-operator`.

Imports only the standard library until it has checked that the program's dependencies are installed.
"""

import sys

from gkm.hoststate.extras import needed


def main() -> int:
    """Run the program gkm-operator; return its exit code."""
    with needed("gkm-operator", "operator"):
        from gkm_operator.main import main as run  # noqa: PLC0415 -- its dependencies may be missing

        return run()


if __name__ == "__main__":
    sys.exit(main())
