"""Failures that a full disk could not store: the agent publishes them from memory while the disk has nothing newer."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.decisions import Observed, make_pointer, serve_revoked_message
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.job import Failure
from gkm_agent.store.pointers import load_pointer


@dataclass(frozen=True, slots=True)
class _UnpersistedFailure:
    """The pointer that the disk refused, and the pointer that it has instead."""

    intended: Pointer
    on_disk: Pointer | None


class UnpersistedFailures:
    """At most one failure per cache. Without it, a cache on a full disk would look like one without an attempt."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._failures: dict[CacheRef, _UnpersistedFailure] = {}

    def record(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Record the end of an attempt; a success or a persisted failure clears the earlier failure."""
        if failure is None or failure.persisted:
            self._failures.pop(wanted.ref, None)
            return
        on_disk = load_pointer(self._layout, wanted.ref)
        if failure.still_served and on_disk is not None and on_disk.state is CacheState.READY:
            # Pods get the files that the pointer on disk names, so the published state stays Ready.
            intended = replace(on_disk, message=serve_revoked_message(failure.reason, failure.message))
        else:
            intended = make_pointer(wanted, wanted.digest or "", CacheState.FAILED, failure.reason, failure.message)
        self._failures[wanted.ref] = _UnpersistedFailure(intended, on_disk)

    def overlay(self, observed: Mapping[CacheRef, Observed]) -> dict[CacheRef, Observed]:
        """Return the observed state with these failures in place of older pointers on disk."""
        result = dict(observed)
        for ref, failure in self._failures.items():
            if ref in result and result[ref].pointer == failure.on_disk:
                result[ref] = replace(result[ref], pointer=failure.intended)
        return result

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Drop every cache that is not among `refs`."""
        self._failures = {ref: failure for ref, failure in self._failures.items() if ref in refs}
