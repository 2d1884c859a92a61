"""What a pull was promised: no longer counted once it is written, and more as an image turns out larger."""

import os
from pathlib import Path

import pytest
from gkm.api.config import Store
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.images.cache import CacheImage, Format, RuntimeCache
from gkm.images.manifest import Descriptor
from gkm.images.pulling.disk_reservations import STEP_BYTES, DiskReservation
from gkm.images.pulling.entry import StoreEntry
from gkm.images.pulling.pull import Progress
from gkm.images.reference import Reference
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.pointers import PointerStore
from support.agent.fakes import FakeImages, digest_of
from support.agent.node import IMAGE, Node
from support.agent.store_node import ENTRY_BYTES, bounded, names_of, want

REF = CacheRef("ml-apps", "a")
MIB = 1 << 20


def image_of(download: int, size: int | None, name: str = "a") -> CacheImage:
    layer = Descriptor(media_type="", digest=digest_of("layer"), size=download)
    ref = Reference.parse(IMAGE).pinned(digest_of(name))
    return CacheImage(ref, digest_of(name), (RuntimeCache(Format.TRITON, (), size, None),), (layer,), {})


class Disk:
    """A disk of 100 MiB, as statvfs tells of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free = free
        self._real = os.statvfs("/")
        monkeypatch.setattr(os, "statvfs", self._measured)

    def _measured(self, _path: Path) -> os.statvfs_result:
        values = list(self._real)
        values[1], values[2], values[4] = 1, 100 * MIB, self.free  # f_frsize, f_blocks, f_bavail
        return os.statvfs_result(values)


def room_of(layout: Layout, bounds: Store) -> DiskBudget:
    layout.make_directories()
    return DiskBudget(PointerStore(layout), bounds, lambda: 0.0)


def grow(promise: DiskReservation | None, disk: Disk | None = None) -> None:
    """Write 80 MiB, which `disk` has no more then."""
    assert promise is not None
    promise.blob_written(MIB)
    for _ in range(80):
        promise.consume(MIB, MIB)
        if disk is not None:
            disk.free -= MIB


def test_written_bytes_are_not_counted_twice(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 50 * MIB)
    room = room_of(layout, Store(min_free_percent=20))
    first, second = image_of(10 * MIB, 10 * MIB), image_of(5 * MIB, 5 * MIB, "b")
    with room.reserve(REF, first) as promise:
        assert promise is not None
        assert room.figures().free == 30 * MIB
        promise.blob_written(10 * MIB)
        promise.consume(10 * MIB, 10 * MIB)
        disk.free -= 20 * MIB
        assert room.figures().free == 30 * MIB
        with room.reserve(CacheRef("ml-apps", "b"), second):
            assert room.figures().free == 20 * MIB
    assert room.figures().free == 30 * MIB


def test_an_image_that_grows_stays_above_what_must_be_free(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 25 * MIB)
    room = room_of(layout, Store(min_free_percent=20))
    image = image_of(MIB, None)
    with pytest.raises(GKMError) as caught, room.reserve(REF, image) as promise:
        grow(promise, disk)
    assert caught.value.reason is Reason.DISK_FULL
    assert disk.free == 20 * MIB
    assert room.figures().free == 20 * MIB
    # What it wrote has gone, and as it needs more than that, there is still no room for it.
    disk.free = 25 * MIB
    assert room.caches_with_space() == []
    disk.free = 40 * MIB
    assert room.caches_with_space() == [REF]


def test_an_image_that_grows_stays_within_the_budget(layout: Layout) -> None:
    room = room_of(layout, Store(min_free_percent=0, max_bytes=4 * MIB))
    image = image_of(MIB, None)
    with pytest.raises(GKMError, match=r"store\.maxBytes"), room.reserve(REF, image) as promise:
        grow(promise)


def test_two_pulls_do_not_reserve_the_same_space(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    Disk(monkeypatch, 50 * MIB)
    room = room_of(layout, Store(min_free_percent=20))
    first, second = image_of(10 * MIB, 10 * MIB), image_of(10 * MIB, 10 * MIB, "b")
    with room.reserve(REF, first):
        with pytest.raises(GKMError) as caught, room.reserve(CacheRef("ml-apps", "b"), second):
            pass
        assert caught.value.reason is Reason.DISK_FULL
    with room.reserve(CacheRef("ml-apps", "b"), second) as promise:
        assert promise is not None
        assert promise.remaining == 20 * MIB


def test_an_image_that_grows_evicts_unused_entries(layout: Layout) -> None:
    class Growing(FakeImages):
        """Images whose content is larger than their blobs, which are all that they say."""

        def fetch(self, image: CacheImage, progress: Progress, reservation: DiskReservation | None) -> StoreEntry:
            assert reservation is not None
            reservation.consume(ENTRY_BYTES, 4096)
            return super().fetch(image, progress, reservation)

    node = Node(layout, Growing(layout))
    bounded(node, Store(max_bytes=STEP_BYTES + ENTRY_BYTES - 1, keep_seconds=3600, min_free_percent=0))
    want(node, "a")
    assert node.settle()
    want(node, "b")

    assert node.settle()

    assert names_of(node, "a", "b") == {"b"}
    assert node.pointer(CacheRef("ml-apps", "b")).state is CacheState.READY
