"""What pods do with a pulled cache: read it through GKM's mount, or copy it first; bench_peers measures the pulls.

The cache is Triton's, at full size 116 times (over 14,000 files, over 1 GB), on a tmpfs, so the figures are what the
programs cost, not the disk. A copy is what an init container does that fills an emptyDir from a volume claim. Last,
what a hit spares: Triton compiles one kernel that adds two vectors, and then finds it. Needs root.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pull_images
from figures import Result
from gkm.mounts import overlay
from support.host import private_mounts
from support.registry.olareg import Olareg
from support.triton.cache import compiled

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class DeliverySize:
    """How many runs there are, and how often the image has Triton's cache."""

    runs: int
    copies: int


FULL = DeliverySize(runs=3, copies=pull_images.COPIES)
SMALLEST = DeliverySize(runs=1, copies=1)


def run(size: DeliverySize) -> Result:
    """Measure all ways."""
    private_mounts.enter()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", dir=SHARED_MEMORY)))
        stack.callback(_unseal, place)
        host = stack.enter_context(Olareg.start(place / "registry")).host
        digest = pull_images.built(place / "image", f"{host}/bench/cache", size.copies)
        rows = [_once(place, f"{host}/bench/cache@{digest}") for _ in range(size.runs)]
    return Result.of(rows)


def _once(place: Path, image: str) -> dict[str, float]:
    task = {"peer": "ours", "host": image.partition("/")[0], "name": "cache", "digest": image.partition("@")[2]}
    entry = place / "entry"
    entry.mkdir()
    words = [
        sys.executable,
        str(Path(__file__).with_name("pull_peer.py")),
        json.dumps(task | {"directory": str(entry)}),
    ]
    subprocess.run(words, capture_output=True, text=True, check=True)
    (content,) = entry.glob("state/store/sha256/*/cache")
    figures = {"copy_for_a_pod_s": _seconds(lambda: shutil.copytree(content, place / "copy"))}
    figures["read_plain_s"] = _seconds(lambda: _read(place / "copy"))
    with _mounted(content, place) as target:
        figures["read_gkm_s"] = _seconds(lambda: _read(target))
    for directory in (place / "copy", entry):
        _unseal(directory)
        shutil.rmtree(directory)
    cache = place / "triton"
    missed, hit = compiled(cache), compiled(cache)
    assert (missed.hit, hit.hit) == (False, True)
    shutil.rmtree(cache)
    return figures | {"triton_compiles_ms": 1000 * missed.seconds, "triton_hits_ms": 1000 * hit.seconds}


@contextmanager
def _mounted(content: Path, place: Path) -> Iterator[Path]:
    """Mount content as the CSI driver does, read-only."""
    target, empty = place / "target", place / "empty"
    target.mkdir(exist_ok=True)
    empty.mkdir(exist_ok=True)
    descriptors = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (content, empty, target)]
    try:
        overlay.mount_read_only(descriptors[:2], descriptors[2], "bench")
        yield target
        subprocess.run(["umount", target], check=True)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _unseal(directory: Path) -> None:
    subprocess.run(["chmod", "-R", "u+w", directory], check=True)


def _read(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            path.read_bytes()


def _seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
