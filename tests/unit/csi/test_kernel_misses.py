"""Kernels that a program compiled beside a mounted cache: counted with their reasons, whatever the pod left there."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from gkm.hoststate import kernel_misses
from gkm.hoststate.kernel_misses import KernelMissCounts
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeOptions, VolumeRecord
from gkm.mounts.link_farm import MountedView
from gkm.runtimes import TRITON, triton
from gkm.runtimes.keys import MissReason, closest
from gkm_csi import kernels
from support.csi.odd_files import make_device
from support.host.descriptors import open_below

KERNELS = Path(__file__).parents[2] / "data" / "triton-cache"
ADD = next(KERNELS.glob("22LB*")) / "add_kernel.json"
"""A real kernel of Triton 3.9 for sm_90."""


def key(name: str) -> str:
    """Return a directory as Triton names it: 64 hexadecimal digits."""
    return name.encode().hex().ljust(64, "0")


def changed(**fields: Any) -> bytes:  # noqa: ANN401 -- values of the metadata
    return json.dumps(json.loads(ADD.read_bytes()) | {"hash": "another"} | fields).encode()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, MissReason.OTHER_SOURCE),
        ({"extern_libs": [["libdevice", "/elsewhere"]], "shared": 4096}, MissReason.OTHER_SOURCE),
        ({"num_warps": 8}, MissReason.OTHER_OPTIONS),
        ({"DISABLE_LLIR_OPT": "1"}, MissReason.OTHER_ENVIRONMENT),
        ({"DISABLE_LLIR_OPT": "1", "num_warps": 8}, MissReason.OTHER_ENVIRONMENT),
        ({"triton_version": "3.8.0"}, MissReason.OTHER_VERSION),
        ({"target": {"backend": "cuda", "arch": 100, "warp_size": 32}, "arch": "sm100"}, MissReason.OTHER_GPU),
    ],
)
def test_the_reason_is_the_first_difference_from_the_closest_kernel(fields: dict[str, Any], reason: MissReason) -> None:
    compiled, mounted = triton.key_of(changed(**fields)), triton.key_of(ADD.read_bytes())
    far = triton.key_of(changed(triton_version="1", num_stages=9, target="x", A="b"))
    assert compiled
    assert mounted
    assert far
    differences = closest(compiled, [far, mounted])
    assert differences is not None
    assert (differences[0].reason if differences else TRITON.entries.equal) is reason
    assert closest(compiled, []) is None


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"hash": 1}', b"\xff", b"[" * 60_000, b'{"hash":1,"target":' + b"9" * 50_000 + b"}"]
)
def test_what_is_no_metadata_is_none(raw: bytes) -> None:
    assert triton.key_of(raw) is None


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A cache, and a volume above it as an overlay shows it; the fixture checks that descriptors are closed."""
    below, volume = tmp_path / "below", tmp_path / "volume"
    (below / key("KEY")).mkdir(parents=True)
    shutil.copy(ADD, below / key("KEY") / "add_kernel.json")
    shutil.copytree(below, volume, copy_function=shutil.copy2)
    for each in (below, volume):
        os.utime(each / key("KEY") / "add_kernel.json", (1, 1))
    yield below, volume
    assert open_below(tmp_path) == []


def found(below: Path, volume: Path, seconds: float = 60.0) -> KernelMissCounts:
    """Return the misses of Triton."""
    return scanned(below, volume, seconds).get("triton", KernelMissCounts())


def scanned(below: Path, volume: Path, seconds: float = 60.0) -> kernel_misses.RuntimeMisses:
    with opened(below, volume) as (view, lowers):
        return kernels.scan(view, lowers, seconds)


@contextmanager
def opened(below: Path, volume: Path) -> Iterator[tuple[MountedView, list[int]]]:
    mount, lower = (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (volume, below))
    try:
        yield MountedView(mount), [lower]
    finally:
        os.close(mount)
        os.close(lower)


def write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)


def test_each_compiled_kernel_counts_once(layers: tuple[Path, Path]) -> None:
    below, volume = layers
    assert found(below, volume) == KernelMissCounts({}, 1)
    write(volume / key("NEW") / "add_kernel.json", changed(num_warps=8))
    write(volume / key("NEW") / "__grp__add_kernel.json", b"{}")
    write(volume / key("OTHER") / "mul_kernel.json", changed())
    write(volume / key("KEY") / "add_kernel.json", changed())
    write(volume / key("TUNED") / "add_kernel.autotune.json", b'{"key": 1}')
    misses = found(below, volume)
    assert (misses.mounted, misses.complete) == (1, True)
    assert misses.reasons == {MissReason.OTHER_OPTIONS: 1, MissReason.NO_SUCH_KERNEL: 1, MissReason.OTHER_PATH: 1}


def test_without_readable_metadata_the_reason_is_unknown(layers: tuple[Path, Path]) -> None:
    below, volume = layers
    for each in (below, volume):
        (each / key("KEY") / "add_kernel.json").write_bytes(b"{}")
        os.utime(each / key("KEY") / "add_kernel.json", (1, 1))
    write(volume / key("NEW") / "add_kernel.json", changed())
    assert found(below, volume).reasons == {MissReason.UNKNOWN: 1}


def test_links_devices_and_large_files_are_not_read(layers: tuple[Path, Path], tmp_path: Path) -> None:
    below, volume = layers
    write(tmp_path / "outside.json", changed())
    (volume / key("KEY") / "link.json").symlink_to(tmp_path / "outside.json")
    (volume / "directory").symlink_to(tmp_path)
    os.mkfifo(volume / key("KEY") / "pipe.json")
    make_device(volume / key("KEY") / "device.json")
    write(volume / key("KEY") / "large.json", changed(note="x" * triton.MAX_METADATA_BYTES))
    with (volume / key("KEY") / "sparse.json").open("wb") as file:
        file.truncate(1 << 40)
    write(volume / key("KEY") / "\x1b[2J.json", changed())
    assert found(below, volume) == KernelMissCounts({}, 1)


def test_number_depth_and_time_have_bounds(layers: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    below, volume = layers
    for number in range(20):
        write(volume / key(f"K{number}") / "mul.json", changed())
    monkeypatch.setattr(kernels, "MAX_KERNELS", 10)
    few = found(below, volume)
    assert (few.kernels, few.complete) == (10, False)
    monkeypatch.setattr(kernels, "MAX_ENTRIES", 5)
    assert not found(below, volume).complete
    monkeypatch.undo()
    (volume.joinpath(*["d"] * 40)).mkdir(parents=True)
    assert not found(below, volume).complete
    assert found(below, volume, seconds=-1) == KernelMissCounts({}, 0, complete=False)


def test_a_volume_that_ends_while_its_scan_is_reported_stays_forgotten(layers: tuple[Path, Path]) -> None:
    """Otherwise the file of the driver would have its misses until the driver restarts."""
    below, volume = layers
    reported: list[bool] = []
    reporting, may_report = Event(), Event()

    def measured(_volume: str, misses: kernel_misses.RuntimeMisses | None) -> None:
        if misses is not None:
            reporting.set()
            assert may_report.wait(20)
        reported.append(misses is not None)

    record = VolumeRecord(
        *("csi-1", "/target", "pod", "ml-apps", "uid"),
        CacheRef("ml-apps", "llama"),
        digest="sha256:" + "a" * 64,
        volume_size=0,
        start_time="2026-01-01T00:00:00Z",
        options=VolumeOptions(private=True),
    )
    watch = kernels.KernelWatch(lambda _record: opened(below, volume), measured)
    watch.usage_measured(record, os.statvfs_result((4096, 4096, 1000, 900, 0, 1000, 100, 0, 0, 255)))
    assert reporting.wait(20)
    end = Thread(target=watch.forget, args=(record.volume_id,))
    end.start()
    end.join(0.2)
    may_report.set()
    end.join()
    watch.stop()
    assert reported == [True, False]
