"""Which pods use what, and withdrawing the entries that nobody names."""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.config import Capture, Store
from gkm.hoststate import files, names, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef, InvalidName
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry
from gkm.images.pulling.blob_files import BlobFiles

from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import WantedCache
from gkm_agent.store import captures as captured
from gkm_agent.store import eviction
from gkm_agent.store import removal as withdrawal
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""Between two looks at what pods left and at the blobs: both are bounded in days and gigabytes."""
CAPTURE = Capture()


class Collector:
    """Reads the records of mounted volumes; what cannot be read stops collection, and is said once."""

    def __init__(
        self,
        store: PointerStore,
        room: DiskBudget,
        bounds: Store,
        clock: Callable[[], float],
        capture: Capture = CAPTURE,
    ) -> None:
        self._store = store
        self._room = room
        self._bounds = bounds
        self._capture = capture
        self._swept = 0.0
        self._clock = clock
        self._complaint = ""
        self._records: list[VolumeRecord] = []
        self._mounted: set[str] = set()
        self._readable = False

    def read(self) -> list[VolumeRecord]:
        """Return the records; while one cannot be read, those that were read last."""
        try:
            self._records = list(records.load_all(self._store.layout))
            self._readable = True
        except (UnreadableState, OSError) as error:
            self._readable = False
            self._log_unreadable(f"a volume record cannot be read, so nothing is collected: {error}")
        return self._records

    def collect(
        self, known: Mapping[CacheRef, Observed], wanted: Mapping[CacheRef, WantedCache], *, complete: bool
    ) -> None:
        """Collect every entry that nobody names, after its time, and keep the store in its bounds.

        While not all that is wanted is known (`complete`), everything may be. What is handed in and was read may have
        changed since: it is looked at again under the entry's lock.
        """
        try:
            self._collect(known, wanted, complete=complete and self._readable)
        except (UnreadableState, OSError) as error:
            self._log_unreadable(f"collection stopped: {error}")
        finally:
            self._store.catalog.save()
        self._sweep()

    def _sweep(self) -> None:
        now = self._clock()
        if abs(now - self._swept) < SWEEP_SECONDS:
            return
        self._swept = now
        try:
            captured.sweep(self._store.layout, self._capture, now)
        except OSError as error:
            _LOG.warning("captured files stay", extra=fields(why=str(error)))
        try:
            BlobFiles(self._store.layout.blobs).sweep()
        except OSError as error:
            _LOG.warning("blobs stay", extra=fields(why=str(error)))

    def _collect(
        self, known: Mapping[CacheRef, Observed], wanted: Mapping[CacheRef, WantedCache], *, complete: bool
    ) -> None:
        entries, now = _entries(self._store.layout), self._clock()
        self._record_usage(entries, known, now)
        if not complete:
            self._room.spare = frozenset()
            return
        named = eviction.named_digests(known.values(), wanted.values()) | self._mounted
        self._store.catalog.record_named(named, now)
        self._room.spare = frozenset(entries - eviction.in_use(known, wanted.values()) - self._mounted)
        for digest in eviction.expired(self._store.catalog.entries(), entries - named, now, self._bounds.keep_seconds):
            if withdrawal.collect(self._store, digest):
                _LOG.info("entry collected", extra=fields(digest=digest))
        self._room.enforce()
        self._complaint = ""

    def _record_usage(self, entries: AbstractSet[str], known: Mapping[CacheRef, Observed], now: float) -> None:
        """Note which entries there are, and which of them are mounted."""
        pointers = [cache.pointer for cache in known.values() if cache.pointer is not None]
        sizes = {pointer.digest: pointer.size_bytes for pointer in pointers}
        mounted = {record.digest for record in self._records}
        self._store.catalog.record_usage(entries, mounted, now, lambda digest: sizes.get(digest) or self._size(digest))
        self._store.catalog.record_unmounted(self._mounted - mounted, now)
        self._mounted = mounted

    def _size(self, digest: str) -> int:
        """Return the size of an entry that is new to us; its lock is made, for a full disk cannot make it later."""
        try:
            self._store.layout.entry_lock(digest).touch(0o600)
            found = entry.find(self._store.layout, digest)
        except (OSError, UnreadableState):
            return 0
        return found.size_bytes if found is not None else 0

    def _log_unreadable(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            _LOG.error("collection", extra=fields(why=why))


def _entries(layout: Layout) -> set[str]:
    """Return the digests of the entries of the store; what we did not make is passed over."""
    found = set()
    for name in files.names_in(layout.store):
        try:
            found.add(names.digest(f"sha256:{name}"))
        except InvalidName:
            continue
    return found
