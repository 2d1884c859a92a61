"""Room for what comes: the budget of the store, and a disk that stays clear of kubelet's thresholds.

A pull begins only with room for all of it. What is short of room is made up for in this order: blobs that are only
kept, the trash, parts of blobs that nobody fetches now, then entries that nobody has a use for, the least recently
mounted first. An entry that somebody has a use for never goes. What is being pulled may turn out larger than it was
taken for: it is given more room as it grows, or ends.
"""

import logging
import os
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock

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
from gkm_agent.store import removal as withdrawal
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

_AGAIN_BYTES = 1 << 20
"""So much must be free before what a full disk ended in the middle is tried again out of its turn."""


@dataclass(frozen=True, slots=True)
class SpaceNeed:
    """Bytes that a pull needs: `store` of the budget, for good; `disk` while it runs, blobs and files side by side."""

    store: int = 0
    disk: int = 0

    def __add__(self, other: "SpaceNeed") -> "SpaceNeed":
        """Return what both need together."""
        return SpaceNeed(self.store + other.store, self.disk + other.disk)

    @classmethod
    def of(cls, image: CacheImage) -> "SpaceNeed":
        """Return what an image needs. One that does not say its size is taken for as large as its blobs."""
        size = image.download_bytes if image.size_bytes is None else image.size_bytes
        return cls(size, image.download_bytes + size)


_NOTHING = SpaceNeed()


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """How it stands, in bytes: entries with what pulls will add, free disk without what they will still take, all.

    `inodes` is the part of the disk's inodes that is free, in percent; 100 where a file system has no end of them.
    """

    store: int
    free: int
    total: int
    inodes: float = 100.0


@dataclass(frozen=True, slots=True)
class SpaceLack:
    """By how many bytes a need exceeds what may be used; nothing is lacking where neither is above 0."""

    store: int
    disk: int

    @property
    def bytes(self) -> int:
        """Return how many bytes of entries would have to go."""
        return max(0, self.store, self.disk)


def lack(figures: SpaceFigures, need: SpaceNeed, bounds: Store) -> SpaceLack:
    """Return what is lacking for a need. Pure."""
    over = figures.store + need.store - bounds.max_bytes if bounds.max_bytes is not None else 0
    # Kubelet looks at inodes as well (nodefs.inodesFree): what is short of them is counted as so much of the disk.
    inodes = int(figures.total * (bounds.min_free_percent - figures.inodes) / 100)
    return SpaceLack(over, max(inodes, least_free(figures.total, bounds) + need.disk - figures.free))


def least_free(total: int, bounds: Store) -> int:
    """Return how many bytes of a disk must stay free."""
    return int(total * bounds.min_free_percent / 100)


class DiskBudget:
    """The room of one node. Thread-safe: pulls ask for it, the agent's own thread keeps it."""

    def __init__(self, store: PointerStore, bounds: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._bounds = bounds
        self._clock = clock
        self._lock = Lock()
        self._reserved: dict[tuple[str, str], tuple[SpaceNeed, DiskReservation]] = {}
        """The need and the unwritten rest of each pull, by repository and digest (PointerStore.exclusive_pull)."""
        self._refused: dict[CacheRef, tuple[SpaceNeed, bool]] = {}
        self._complaint = ""
        self.spare: frozenset[str] = frozenset()
        """Digests of entries that nobody mounts and no cache of this node has a use for, as of the last turn."""

    @contextmanager
    def reserve(self, ref: CacheRef, image: CacheImage) -> Iterator[DiskReservation | None]:
        """Reserve space for an image during its pull and evict for it; yield None for an entry that the store has.

        Raises:
            GKMError: DISK_FULL with the figures; nothing was evicted in vain.
        """
        if entry.exists(self._store.layout, image.digest):
            with self._lock:
                self._refused.pop(ref, None)
            yield None
            return
        pull = image.ref.name, image.digest
        with self._lock:
            reservation = self._reserve_for(pull, ref, image)
        try:
            yield reservation
            self._already_stored(image)
        finally:
            with self._lock:
                del self._reserved[pull]

    def enforce(self) -> None:
        """Bring store and disk back within their bounds, as far as there is anything that may go."""
        with self._lock:
            short = self._lack(SpaceNeed())
            if short.bytes:
                short = self._evict_beyond(short)
            why = self._figures_text(SpaceNeed()) if short.bytes else ""
        if bool(why) != bool(self._complaint):
            level = logging.WARNING if why else logging.INFO
            _LOG.log(level, "room is short" if why else "room is there again", extra=fields(why=why or None))
        self._complaint = why

    def record_disk_full(self, ref: CacheRef) -> None:
        """Note that the disk refused a cache in the middle: it is worth a try when there is room again."""
        with self._lock:
            if ref not in self._refused:
                need = SpaceNeed(disk=_AGAIN_BYTES)
                self._refused[ref] = (need, self._fits(need))

    def caches_with_space(self) -> list[CacheRef]:
        """Return the caches for which there was no room when last looked at, and is now."""
        with self._lock:
            now = {ref: (need, self._fits(need)) for ref, (need, _) in self._refused.items()}
            came = [ref for ref, (_, fits) in now.items() if fits and not self._refused[ref][1]]
            self._refused = {ref: entry for ref, entry in now.items() if ref not in came}
        return came

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget the refusals of every cache that is not among `refs`."""
        with self._lock:
            self._refused = {ref: refusal for ref, refusal in self._refused.items() if ref in refs}

    def figures(self) -> SpaceFigures:
        """Return how it stands now."""
        notes = self._store.catalog.entries()
        # The same content from two repositories is two downloads, and one entry.
        reserved = dict(self._reserved)
        pending = {
            digest: need.store for (_, digest), (need, _) in reserved.items() if need.store and digest not in notes
        }
        disk = os.statvfs(self._store.layout.state)
        return SpaceFigures(
            store=sum(note.size_bytes for note in notes.values()) + sum(pending.values()),
            free=disk.f_bavail * disk.f_frsize - sum(rest.remaining for _, rest in reserved.values()),
            total=disk.f_blocks * disk.f_frsize,
            inodes=100 * disk.f_favail / disk.f_files if disk.f_files else 100.0,
        )

    def _reserve_for(self, pull: tuple[str, str], ref: CacheRef, image: CacheImage) -> DiskReservation:
        """Reserve all the space that an image claims; the reservation grows when the pull needs more."""
        need = SpaceNeed.of(image)

        def grow(content: int, disk: int) -> None:
            more = SpaceNeed(content, disk)
            with self._lock:
                # The space granted so far returns when the pull ends: a retry with less than all of it is useless.
                granted, _ = self._reserved[pull]
                self._make_space(ref, more, granted)
                self._reserved[pull] = granted + more, reservation
                reservation.extend(content, disk)

        reservation = DiskReservation(image, grow)
        self._make_space(ref, need)
        self._refused.pop(ref, None)
        self._reserved[pull] = need, reservation
        return reservation

    def _already_stored(self, image: CacheImage) -> None:
        with suppress(OSError, UnreadableState):
            # The lock is made now, for a full disk cannot make it when the entry must go.
            self._store.layout.entry_lock(image.digest).touch(0o600)
            found = entry.find(self._store.layout, image.digest)
            if found is not None:
                self._store.catalog.add(image.digest, found.size_bytes, self._clock())

    def _fits(self, need: SpaceNeed) -> bool:
        return self._lack(need).bytes <= eviction.size_of(self._store.catalog.entries(), self.spare)

    def _lack(self, need: SpaceNeed) -> SpaceLack:
        return lack(self.figures(), need, self._bounds)

    def _make_space(self, ref: CacheRef, need: SpaceNeed, given: SpaceNeed = _NOTHING) -> None:
        """Make room for a need beside what was `given` before; raises GKMError where there is none."""
        short = self._lack(need)
        if short.disk > 0:
            self._clear(need)
            short = self._lack(need)
        if short.bytes and short.bytes <= eviction.size_of(self._store.catalog.entries(), self.spare):
            short = self._evict(need)
        if short.bytes:
            self._refused[ref] = (given + need, False)
            raise GKMError(Reason.DISK_FULL, self._figures_text(need), "it is begun when there is room")

    def _evict_beyond(self, short: SpaceLack) -> SpaceLack:
        if short.disk > 0:
            self._clear(SpaceNeed())
        return self._evict(SpaceNeed())

    def _evict(self, need: SpaceNeed) -> SpaceLack:
        """Evict until a need fits, and return what is lacking then."""
        spare = set(self.spare)
        short = self._lack(need)
        for digest in eviction.eviction_order(self._store.catalog.entries(), spare):
            if not short.bytes:
                break
            try:
                if withdrawal.evict(self._store, digest):
                    _LOG.info("entry evicted", extra=fields(digest=digest, lack=short.bytes))
            except (UnreadableState, OSError) as error:
                _LOG.error("entry not evicted", extra=fields(digest=digest, why=str(error)))
            short = self._lack(need)
        return short

    def _clear(self, need: SpaceNeed) -> None:
        """Remove what is kept only because there was room; last the parts of blobs, which a pull would go on with."""
        blobs = BlobFiles(self._store.layout.blobs)
        try:
            blobs.evict_unused()
            withdrawal.empty_trash(self._store)
            if self._lack(need).disk > 0:
                blobs.sweep(time.time() + 2 * STALE_SECONDS)  # nobody adds to them now, so they are as good as stale
        except OSError as error:
            _LOG.error("blobs or trash not removed", extra=fields(why=str(error)))

    def _figures_text(self, need: SpaceNeed) -> str:
        """Return what is lacking, in figures. Whose caches they are is not said: each namespace reads its own."""
        figures, bounds = self.figures(), self._bounds
        short = lack(figures, need, bounds)
        spare = eviction.size_of(self._store.catalog.entries(), self.spare)
        texts = []
        if short.store > 0:
            texts.append(
                f"the store of this node may hold {bounds.max_bytes} bytes (store.maxBytes): it holds {figures.store}, "
                f"{need.store} more are needed"
            )
        if short.disk > 0:
            texts.append(
                f"the disk of {self._store.layout.state} has {max(0, figures.free)} of {figures.total} bytes free, of "
                f"which {least_free(figures.total, bounds)} must stay free (store.minFreePercent "
                f"{bounds.min_free_percent:g}): {need.disk} more are needed"
            )
        if figures.inodes < bounds.min_free_percent:
            texts.append(f"{figures.inodes:.1f} % of its inodes are free, {bounds.min_free_percent:g} % must stay so")
        return (
            f"{'; '.join(texts)}; {spare} bytes of caches that nobody uses can go, "
            f"{max(0, short.bytes - spare)} bytes more would have to"
        )
