"""The disk budget: the size limit of the store, and free space on the disk above the kubelet's thresholds.

A pull starts only with a reservation for all of its image. To make space, the budget removes in this order: cached
blobs, the trash, partial blobs without a running pull, and spare entries, the least recently mounted first. It never
removes an entry that a cache or a pod uses. An image may turn out larger than expected: its pull extends the
reservation as it grows, or ends.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TypeVar

from gkm.api.config import Store
from gkm.api.errors import GKMError, Reason
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.images.cache import CacheImage
from gkm.images.pulling import entry
from gkm.images.pulling.blob_files import STALE_SECONDS, BlobFiles
from gkm.images.pulling.disk_reservations import DiskReservation

from gkm_agent.store import eviction
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

_RETRY_BYTES = 1 << 20
"""Free bytes at which the agent retries, before its normal retry, a pull that a full disk ended."""


@dataclass(frozen=True, slots=True)
class SpaceNeed:
    """The bytes that a pull needs: `store` for its extracted entry, `disk` for downloaded blobs and temporary files."""

    store: int = 0
    disk: int = 0

    def __add__(self, other: "SpaceNeed") -> "SpaceNeed":
        """Return the sum of two needs."""
        return SpaceNeed(self.store + other.store, self.disk + other.disk)

    @classmethod
    def of(cls, image: CacheImage) -> "SpaceNeed":
        """Return the bytes of disk that the pull of an image needs.

        Without a size label, the content of the image is taken to be as large as its blobs.
        """
        size = image.download_bytes if image.size_bytes is None else image.size_bytes
        return cls(size, image.download_bytes + size)


_NOTHING = SpaceNeed()
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What a refused pull needs, "" as digest if that is not known, and whether it fitted at the last check."""

    digest: str
    need: SpaceNeed
    fits: bool


class _SpaceComing(Exception):
    """The trash holds space that is needed; it is being deleted."""


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """Current sizes in bytes, and the share of free inodes.

    `store` is the size of the entries including running pulls, `free` the free space of the disk less the reservations,
    `total` the size of the disk. `inodes` is the free share of its inodes in percent, 100 for a file system without a
    limit.
    """

    store: int
    free: int
    total: int
    inodes: float = 100.0


@dataclass(frozen=True, slots=True)
class SpaceLack:
    """How many bytes a need exceeds the limits of the store and of the disk; 0 or less means that the need fits."""

    store: int
    disk: int

    @property
    def bytes(self) -> int:
        """Return how many bytes of entries must be evicted so that the need fits."""
        return max(0, self.store, self.disk)


def lack(figures: SpaceFigures, need: SpaceNeed, bounds: Store) -> SpaceLack:
    """Return by how much a need exceeds the limits. Pure."""
    over = figures.store + need.store - bounds.max_bytes if bounds.max_bytes is not None else 0
    # The kubelet has a threshold for inodes as well (nodefs.inodesFree). A lack of inodes is the same share of the
    # disk.
    inodes = int(figures.total * (bounds.min_free_percent - figures.inodes) / 100)
    return SpaceLack(over, max(inodes, least_free(figures.total, bounds) + need.disk - figures.free))


def least_free(total: int, bounds: Store) -> int:
    """Return the bytes of the disk that must stay free."""
    return int(total * bounds.min_free_percent / 100)


class DiskBudget:
    """Keeps the store and the disk of one node within their limits.

    Thread-safe: pulls reserve space, and the reconcile loop enforces the limits.
    """

    def __init__(self, store: PointerStore, bounds: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._lock = Lock()
        self._reserved: dict[tuple[str, str], tuple[SpaceNeed, DiskReservation]] = {}
        """The need and the unwritten rest of each pull, by repository and digest (PointerStore.exclusive_pull)."""
        self._refused: dict[CacheRef, _Refusal] = {}
        self._last_error = ""
        self.spare: frozenset[str] = frozenset()
        """The digests of entries that no pod mounts and no cache of this node uses, as of the last reconcile pass."""

    @contextmanager
    def reserve(self, ref: CacheRef, image: CacheImage) -> Iterator[DiskReservation | None]:
        """Reserve space for an image during its pull and evict for it; yield None for an entry that the store has.

        Raises:
            GKMError: DISK_FULL with the figures. The budget evicts only if the eviction makes enough space.
        """
        if entry.exists(self._store.layout, image.digest):
            with self._lock:
                self._refused.pop(ref, None)
            yield None
            return
        pull = image.ref.name, image.digest
        reservation = self._granted(lambda: self._reserve_for(pull, ref, image))
        try:
            yield reservation
            if (size := self._store.entry_size(image.digest)) is not None:
                self._store.catalog.add(image.digest, size, self._clock())
        finally:
            with self._lock:
                del self._reserved[pull]

    def check_refused(self, ref: CacheRef, digest: str) -> None:
        """Refuse again, from memory, an image that was refused and still does not fit; nothing is evicted for it.

        Raises:
            GKMError: DISK_FULL with the figures of now.
        """

        def check() -> None:
            refusal = self._refused.get(ref)
            if refusal is None or refusal.digest != digest or entry.exists(self._store.layout, digest):
                return
            if self._cleared(refusal.need).bytes > eviction.size_of(self._store.catalog.entries(), self.spare):
                raise self._disk_full(refusal.need)

        self._granted(check)

    def enforce(self) -> None:
        """Evict unused entries and spare files until store and disk are within their limits, as far as possible.

        While the trash is being deleted, the space on the disk is unknown: the pass after it continues.
        """
        with self._lock:
            try:
                short = self._cleared(_NOTHING)
                if short.bytes:
                    short = self._evict(_NOTHING, short)
            except _SpaceComing:
                return
            error = self._figures_text(_NOTHING) if short.bytes else ""
        if bool(error) != bool(self._last_error):
            level = logging.WARNING if error else logging.INFO
            _LOG.log(
                level,
                "disk budget of the cache store exceeded, no new caches are fetched"
                if error
                else "disk budget of the cache store met",
                extra=fields(why=error or None),
            )
        self._last_error = error

    def record_disk_full(self, ref: CacheRef) -> None:
        """Remember that a pull ended because the disk was full, so that it is retried when space is free."""
        with self._lock:
            if ref not in self._refused:
                need = SpaceNeed(disk=_RETRY_BYTES)
                self._refused[ref] = _Refusal("", need, self._fits(need))

    def caches_with_space(self) -> list[CacheRef]:
        """Return the caches that a full disk refused earlier and that fit now."""
        with self._lock:
            now = {ref: replace(refusal, fits=self._fits(refusal.need)) for ref, refusal in self._refused.items()}
            fitting = [ref for ref, refusal in now.items() if refusal.fits and not self._refused[ref].fits]
            self._refused = {ref: refusal for ref, refusal in now.items() if ref not in fitting}
        return fitting

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget refusals of caches that are not among `refs`."""
        with self._lock:
            self._refused = {ref: refusal for ref, refusal in self._refused.items() if ref in refs}

    def figures(self) -> SpaceFigures:
        """Return the current sizes of store and disk."""
        entries = self._store.catalog.entries()
        # The same content from two repositories is two downloads, but one entry.
        reserved = dict(self._reserved)
        pending = {
            digest: need.store for (_, digest), (need, _) in reserved.items() if need.store and digest not in entries
        }
        disk = os.statvfs(self._store.layout.state)
        return SpaceFigures(
            store=sum(info.size_bytes for info in entries.values()) + sum(pending.values()),
            free=disk.f_bavail * disk.f_frsize - sum(rest.remaining for _, rest in reserved.values()),
            total=disk.f_blocks * disk.f_frsize,
            inodes=100 * disk.f_favail / disk.f_files if disk.f_files else 100.0,
        )

    def _reserve_for(self, pull: tuple[str, str], ref: CacheRef, image: CacheImage) -> DiskReservation:
        """Reserve all the space that an image claims; the reservation grows when the pull needs more."""
        need = SpaceNeed.of(image)

        def grow(content: int, disk: int) -> None:
            more = SpaceNeed(content, disk)

            def grant() -> None:
                # The space granted so far returns when the pull ends: a retry with less than all of it is useless.
                granted, _ = self._reserved[pull]
                self._make_space(ref, image.digest, more, granted)
                self._reserved[pull] = granted + more, reservation
                reservation.extend(content, disk)

            self._granted(grant)

        reservation = DiskReservation(image, grow)
        self._make_space(ref, image.digest, need)
        self._refused.pop(ref, None)
        self._reserved[pull] = need, reservation
        return reservation

    def _granted(self, grant: Callable[[], _T]) -> _T:
        """Return what `grant` returns under the lock; while its space is being deleted, wait without the lock."""
        while True:
            with self._lock, suppress(_SpaceComing):
                return grant()
            self._store.trash.wait()

    def _fits(self, need: SpaceNeed) -> bool:
        return self._lack(need).bytes <= eviction.size_of(self._store.catalog.entries(), self.spare)

    def _lack(self, need: SpaceNeed) -> SpaceLack:
        return lack(self.figures(), need, self._bounds)

    def _make_space(self, ref: CacheRef, digest: str, need: SpaceNeed, reserved: SpaceNeed = _NOTHING) -> None:
        """Make space for a need beside the space `reserved` before.

        Raises:
            GKMError: that is impossible.
            _SpaceComing: the trash has to be deleted first.
        """
        short = self._cleared(need)
        if short.bytes and short.bytes <= eviction.size_of(self._store.catalog.entries(), self.spare):
            short = self._evict(need, short)
        if short.bytes:
            self._refused[ref] = _Refusal(digest, reserved + need, fits=False)
            raise self._disk_full(need)

    def _disk_full(self, need: SpaceNeed) -> GKMError:
        return GKMError(Reason.DISK_FULL, self._figures_text(need), "the pull starts when space is free")

    def _evict(self, need: SpaceNeed, short: SpaceLack) -> SpaceLack:
        """Evict until a need fits; return the remaining lack.

        Raises:
            _SpaceComing: an entry was evicted, and may suffice for the disk once it is deleted.
        """
        for digest in eviction.eviction_order(self._store.catalog.entries(), self.spare):
            if not short.bytes:
                break
            try:
                is_evicted = self._store.evict(digest)
            except (UnreadableState, OSError) as error:
                is_evicted = False
                _LOG.error(
                    "eviction of a store entry failed, the next one is tried",
                    extra=fields(digest=digest, why=str(error)),
                )
            if is_evicted:
                _LOG.info("store entry evicted to free disk space", extra=fields(digest=digest, lack=short.bytes))
            short = self._lack(need)
            if is_evicted and short.disk > 0:
                raise _SpaceComing
        return short

    def _cleared(self, need: SpaceNeed) -> SpaceLack:
        """Return the lack without cached blobs and the trash; last without partial blobs, which a pull would resume.

        Raises:
            _SpaceComing: the trash is being deleted.
        """
        short = self._lack(need)
        if short.disk <= 0:
            return short
        blobs = BlobFiles(self._store.layout.blobs)
        try:
            blobs.evict_unused()
            if self._lack(need).disk > 0 and self._store.trash.is_emptying():
                raise _SpaceComing
            if self._lack(need).disk > 0:
                # With this time every partial blob without a running pull is stale.
                blobs.sweep(time.time() + 2 * STALE_SECONDS)
        except OSError as error:
            _LOG.error("image blobs not removed to free disk space", extra=fields(why=str(error)))
        return self._lack(need)

    def _figures_text(self, need: SpaceNeed) -> str:
        """Return the lack in figures, without names of caches: each namespace may read only its own."""
        figures, bounds = self.figures(), self._bounds
        short = lack(figures, need, bounds)
        spare = eviction.size_of(self._store.catalog.entries(), self.spare)
        texts = []
        if short.store > 0:
            texts.append(
                f"the limit of this node's store is {bounds.max_bytes} bytes (store.maxBytes): it has {figures.store}, "
                f"{need.store} more are needed"
            )
        if short.disk > 0:
            texts.append(
                f"the disk of {self._store.layout.state} has {max(0, figures.free)} of {figures.total} bytes free, of "
                f"which {least_free(figures.total, bounds)} must stay free (store.minFreePercent "
                f"{bounds.min_free_percent:g}): {need.disk} more are needed"
            )
        if figures.inodes < bounds.min_free_percent:
            texts.append(
                f"{figures.inodes:.1f} % of the disk's inodes are free, {bounds.min_free_percent:g} % must stay free"
            )
        return (
            f"{'; '.join(texts)}; {spare} bytes of unused caches can be evicted, "
            f"{max(0, short.bytes - spare)} bytes more are lacking"
        )
