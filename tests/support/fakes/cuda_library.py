"""A CUDA driver for tests, of a GPU that computes nothing: what runs up to a launch runs, its result is missing."""

import os
from pathlib import Path

from support.fakes import shared_library

_SOURCES = Path(__file__).parent / "cuda"


def environment() -> dict[str, str]:
    """Build the library once; return the variables with which a process, and Triton in it, loads it."""
    directory = str(shared_library.build(_SOURCES, "libcuda.so.1"))
    paths = [directory, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(paths), "TRITON_LIBCUDA_PATH": directory}
