"""A cache that real Triton fills and reads, here or in a mount namespace."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer, relocate
from support.host.waiting import scaled
from support.triton import installation as triton

PROGRAMS = triton.LOCK.parent / "programs"
STAGES = ["ttir", "ttgir", "llir", "ptx", "cubin"]
"""What a miss goes through."""


class TritonFailed(Exception):
    """Triton ended with an error; the message is what it printed, `stages` are those that it was to go through."""

    def __init__(self, printed: str, stages: list[str]) -> None:
        super().__init__(printed)
        self.stages = stages


@dataclass(frozen=True)
class Compiled:
    """What `triton.compile` did: a hit reaches no stage, and reads `paths`."""

    hit: bool
    stages: list[str]
    binary: str
    paths: list[str]
    seconds: float


def compiled(cache: Path, block: int = 128, *, within: Sequence[str] = ()) -> Compiled:
    """Have Triton compile the kernel with `cache` as its cache; `within` is put before the command line.

    Raises:
        TritonFailed: with Python's traceback.
    """
    # Triton warns while this is unset, and it is part of the key of every kernel.
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("PYTHONPATH", None)
    # Isolated: neither this directory nor the user's own packages may stand in for Triton.
    command = [*within, str(triton.python()), "-I", str(PROGRAMS / "compile_kernel.py"), str(block)]
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=scaled(120))
    if run.returncode:
        raise TritonFailed(run.stderr, json.loads(run.stdout)["stages"] if run.stdout else [])
    return Compiled(**json.loads(run.stdout))


def relocated(content: Path, mount_path: Path, place: Path) -> Path:
    """Relocate a cache as the CSI process does."""
    descriptor = os.open(content, os.O_PATH | os.O_DIRECTORY)
    try:
        return relocate(descriptor, RelocationLayer(MountPath(str(mount_path))), place)
    finally:
        os.close(descriptor)


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return every file with the time of its last change and its content."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }
