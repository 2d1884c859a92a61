"""The real torch (`python -m support.torch.installation`): 540 MB to fetch and 1.4 GB on disk.

The wheel is the one for CUDA, because the package index has no other one for x86_64. NVIDIA's libraries, gigabytes
more, are replaced by stubs that report "no device" (support.torch.stub_libraries): torch then compiles for the
processor.
"""

import sys
from pathlib import Path

from support.peers.environments import PinnedEnvironment
from support.torch import stub_libraries

_HERE = Path(__file__).resolve().parent
TORCH = PinnedEnvironment(
    "torch",
    "torch",
    _HERE / "requirements.lock",
    "540 MB to fetch",
    finish=lambda directory: stub_libraries.write(next(directory.glob("lib/python3*/site-packages/torch/lib"))),
    sources=(_HERE / "stub_libraries.py",),
)


def python() -> Path:
    """Return the interpreter that can import torch; installs and raises as `PinnedEnvironment.python`."""
    return TORCH.python()


if __name__ == "__main__":
    sys.exit(TORCH.main())
