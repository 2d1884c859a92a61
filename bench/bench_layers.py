"""The candidates for a private layer: a tmpfs, an ext4 image on a loop device, or a plain directory without a limit.

The bench creates each, mounts it below an overlay, and removes it, as a publish and an unpublish do; then it writes
through the overlay. Needs root; the loop device needs mkfs.ext4 and losetup.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from figures import Result
from gkm.mounts import overlay, syscalls
from support.host import private_mounts

LIMIT = 1 << 30
_DIRECTORY = os.O_PATH | os.O_DIRECTORY

Place = Path


@dataclass(frozen=True)
class LayersSize:
    """How often each layer is made and removed, and how many MiB are written through the overlay."""

    rounds: int
    written_mib: int


FULL = LayersSize(rounds=100, written_mib=256)
SMALLEST = LayersSize(rounds=2, written_mib=2)
"""Two rounds: a quantile needs two values."""


def run(size: LayersSize) -> Result:
    """Measure all three."""
    private_mounts.enter()
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory:
        place = Path(directory)
        for name in ("lower", "empty", "target", "scratch"):
            (place / name).mkdir()
        kinds: dict[str, Callable[[Place], object]] = {"tmpfs": _tmpfs, "loop": _loop, "directory": _plain}
        figures: dict[str, float] = {}
        for kind, make in kinds.items():
            times = sorted(_round(place, make) for _ in range(size.rounds))
            figures[f"{kind}_ms_p50"] = round(1000 * median(times), 3)
            figures[f"{kind}_ms_p99"] = round(1000 * quantiles(times, n=100)[98], 3)
            figures[f"{kind}_write_mib_s"] = round(_speed(place, make, size.written_mib), 1)
            rows += [{f"{kind}_ms_p50": 1000 * seconds} for seconds in times]
    return Result(figures, rows)


def _round(place: Place, make: Callable[[Place], object]) -> float:
    began = time.perf_counter()
    with _mounted(place, make):
        pass
    return time.perf_counter() - began


def _speed(place: Place, make: Callable[[Place], object], mib: int) -> float:
    """Return MiB/s of writing through the overlay until it is on the disk, where there is one."""
    block = os.urandom(1 << 20)
    with _mounted(place, make):
        began = time.perf_counter()
        with (place / "target" / "file").open("wb", buffering=0) as file:
            for _ in range(mib):
                file.write(block)
            os.fsync(file.fileno())
        return mib / (time.perf_counter() - began)


@contextmanager
def _mounted(place: Place, make: Callable[[Place], object]) -> Iterator[None]:
    make(place)
    try:
        yield
    finally:
        syscalls.umount2(str(place / "target"), 0)
        if make is _loop:
            syscalls.umount2(str(place / "scratch"), 0)
            (place / "image").unlink()
        if make is _plain:
            subprocess.run(["rm", "-rf", str(place / "upper"), str(place / "work")], check=True)


def _tmpfs(place: Place) -> None:
    """Create the same layers as the driver."""
    lowers = [os.open(place / name, _DIRECTORY) for name in ("lower", "empty")]
    target = os.open(place / "target", _DIRECTORY)
    try:
        overlay.mount_private(lowers, target, "bench", scratch=place / "scratch", size=LIMIT)
    finally:
        for descriptor in (*lowers, target):
            os.close(descriptor)


def _loop(place: Place) -> None:
    image = place / "image"
    with image.open("wb") as file:
        file.truncate(LIMIT)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place / "scratch")], check=True)
    _overlay(place, place / "scratch")


def _plain(place: Place) -> None:
    _overlay(place, place)


def _overlay(place: Place, upper: Place) -> None:
    for name in ("upper", "work"):
        (upper / name).mkdir(exist_ok=True)
    options = f"lowerdir={place}/lower:{place}/empty,upperdir={upper}/upper,workdir={upper}/work"
    syscalls.mount("bench", str(place / "target"), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
