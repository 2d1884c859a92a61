"""Garbage collection of the store: remove the entries that no cache and no volume record names."""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from gkm.api.config import Capture, Store
from gkm.hoststate import records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling.blob_files import BlobFiles

from gkm_agent.caches.decisions import Observed
from gkm_agent.caches.model import WantedCache
from gkm_agent.store import captures, catalog, eviction
from gkm_agent.store.budget import DiskBudget
from gkm_agent.store.captures import CapturesInUse
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0
"""Interval in seconds between sweeps of captures and blobs, whose limits are days and gigabytes."""


class Collector:
    """Removes store entries that no cache and no volume record names.

    While a volume record is unreadable it removes no entry, and logs that once.
    """

    def __init__(
        self,
        store: PointerStore,
        budget: DiskBudget,
        bounds: Store,
        clock: Callable[[], float],
        *,
        capture: Capture,
        captures_in_use: CapturesInUse,
    ) -> None:
        self._store = store
        self._budget = budget
        self._bounds = bounds
        self._capture = capture
        self._captures_in_use = captures_in_use
        self._swept = 0.0
        self._clock = clock
        self._last_error = ""
        self._records: list[VolumeRecord] = []
        self._mounted: set[str] = set()
        self._readable = False

    def read(self) -> list[VolumeRecord]:
        """Return the volume records, an unreadable one as it was last read."""
        before = {record.volume_id: record for record in self._records}
        found: list[VolumeRecord] = []
        error: Exception | None = None
        try:
            for volume in records.volume_ids(self._store.layout):
                try:
                    record = records.load(self._store.layout, volume)
                except UnreadableState as unreadable:
                    error, record = unreadable, before.get(volume)
                if record is not None:
                    found.append(record)
            self._records = found
        except OSError as unlistable:
            error = unlistable
        self._readable = error is None
        if error is not None:
            self._log_stopped(f"a volume record is unreadable, so its entry is unknown: {error}")
        return self._records

    def collect(
        self, observed: Mapping[CacheRef, Observed], wanted: Mapping[CacheRef, WantedCache], *, complete: bool
    ) -> None:
        """Remove every unnamed entry after its retention, and enforce the disk budget.

        While the wanted caches are not `complete`, a cache may name any entry, so the collector removes no entry. The
        arguments may be outdated: the store checks pointers and records again under the entry's lock.
        """
        try:
            self._collect(observed, wanted, complete=complete and self._readable)
        except (UnreadableState, OSError) as error:
            self._log_stopped(str(error))
        finally:
            self._store.catalog.save()
        self._sweep()

    def _sweep(self) -> None:
        now = self._clock()
        if abs(now - self._swept) < SWEEP_SECONDS:
            return
        self._swept = now
        try:
            captures.sweep(self._store.layout, self._capture, now, self._captures_in_use)
        except OSError as error:
            _LOG.warning("old captured files not removed, the next sweep tries again", extra=fields(why=str(error)))
        try:
            self._store.trash.sweep()
        except OSError as error:
            _LOG.warning(
                "store's trash unreadable, removed entries stay on the disk, the next sweep tries again",
                extra=fields(why=str(error)),
            )
        try:
            BlobFiles(self._store.layout.blobs).sweep()
        except OSError as error:
            _LOG.warning("stale image blobs not removed, the next sweep tries again", extra=fields(why=str(error)))

    def _collect(
        self, observed: Mapping[CacheRef, Observed], wanted: Mapping[CacheRef, WantedCache], *, complete: bool
    ) -> None:
        entries, now = catalog.digests_in(self._store.layout.store), self._clock()
        self._record_usage(entries, observed, now)
        if not complete:
            self._budget.spare = frozenset()
            return
        named = eviction.named_digests(observed.values(), wanted.values()) | self._mounted
        self._store.catalog.record_named(named, now)
        self._budget.spare = frozenset(entries - eviction.in_use(observed, wanted.values()) - self._mounted)
        for digest in eviction.expired(self._store.catalog.entries(), entries - named, now, self._bounds.keep_seconds):
            if self._store.collect(digest):
                _LOG.info("store entry removed, no cache names it", extra=fields(digest=digest))
        self._budget.enforce()
        self._last_error = ""

    def _record_usage(self, entries: AbstractSet[str], observed: Mapping[CacheRef, Observed], now: float) -> None:
        pointers = [cache.pointer for cache in observed.values() if cache.pointer is not None]
        sizes = {pointer.digest: pointer.size_bytes for pointer in pointers}
        mounted = {record.digest for record in self._records}

        def size_of(digest: str) -> int:
            return sizes.get(digest) or self._store.entry_size(digest) or 0

        self._store.catalog.record_usage(entries, mounted, now, size_of)
        self._store.catalog.record_unmounted(self._mounted - mounted, now)
        self._mounted = mounted

    def _log_stopped(self, cause: str) -> None:
        if cause != self._last_error:
            self._last_error = cause
            _LOG.error("store entries without a cache not removed, later passes try again", extra=fields(why=cause))
