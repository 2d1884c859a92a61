"""Write deploy/{base,components,overlays,remove-state} and install.yaml from the chart, by Helm.

Without an argument, the directory is build/deploy. Helm is a partner of the tests (tests/support/peers), built from a
pinned Go module when it is first needed.
"""

import sys
from pathlib import Path

from kustomizations.directories import COMPONENTS, OVERLAYS
from kustomizations.rendering import write

DEFAULT = Path(__file__).resolve().parent.parent / "build" / "deploy"


def main() -> int:
    """Write; return the exit code."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    write(target, COMPONENTS, OVERLAYS)
    print(f"{target} has base, components, overlays, remove-state and install.yaml")  # noqa: T201 -- a command line
    return 0


if __name__ == "__main__":
    sys.exit(main())
