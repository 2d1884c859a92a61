"""What this program is called: `gkm`, or `kubectl gkm` when kubectl runs it as its plugin."""

import sys
from pathlib import Path
from typing import Final

PLUGIN = "kubectl-gkm"


def _name(started_as: str) -> str:
    return PLUGIN.replace("-", " ") if Path(started_as).name.partition(".")[0] == PLUGIN else "gkm"


PROGRAM: Final = _name(sys.argv[0] if sys.argv else "")
