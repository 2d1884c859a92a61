# mypy: ignore-errors
# ruff: noqa: ANN001 -- run by another Python
"""Run by the Python that has Triton: the kernels of bench/coldstart_kernels.py, with the files that they add.

The argument is that of coldstart_kernels.py: `launch`, or a target such as cuda:90:32. Prints JSON.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import coldstart_kernels
import triton


def files(cache) -> set[str]:
    """Return the files of the cache."""
    return {str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file()}


def main(what) -> None:
    """Print what happened."""
    cache = Path(os.environ["TRITON_CACHE_DIR"])
    before = files(cache)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        coldstart_kernels.main(what)
    found = json.loads(printed.getvalue())
    result = {
        "device": coldstart_kernels.Cuda().device() if what == "launch" else f"none, compiled for {what}",
        "versions": {"triton": triton.__version__},
        "seconds": found["moments"][0] - found["imported"],
        "kernel_hits": found["hits"].count(True),
        "kernels_compiled": found["hits"].count(False),
        "added": sorted(files(cache) - before),
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
