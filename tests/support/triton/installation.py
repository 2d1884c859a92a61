"""The real Triton (`python -m support.triton.installation`): 286 MB to fetch and 1 GB on disk.

It compiles for a GPU that is not there, and needs no torch for that.
"""

import sys
from pathlib import Path

from support.peers.environments import PinnedEnvironment

LOCK = Path(__file__).resolve().parent / "requirements.lock"
TRITON = PinnedEnvironment("triton", "Triton", LOCK, "286 MB to fetch")


def python() -> Path:
    """Return the interpreter that can import triton; installs and raises as `PinnedEnvironment.python`."""
    return TRITON.python()


if __name__ == "__main__":
    sys.exit(TRITON.main())
