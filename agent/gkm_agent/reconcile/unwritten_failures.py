"""Failures that the disk could not take: said from memory, for as long as the disk says nothing newer."""

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
    """What should stand on the disk, and what stands there instead."""

    intended: Pointer
    on_disk: Pointer | None


class UnpersistedFailures:
    """At most one failure a cache. A full disk must not look like a cache that nobody has tried."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._failures: dict[CacheRef, _UnpersistedFailure] = {}

    def record(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Take in how a try ended; one that stands on the disk is forgotten here."""
        if failure is None or failure.persisted:
            self._failures.pop(wanted.ref, None)
            return
        stands = load_pointer(self._layout, wanted.ref)
        if failure.still_served and stands is not None and stands.state is CacheState.READY:
            # What pods get is decided by the disk, and that gives it to them.
            meant = replace(stands, message=serve_revoked_message(failure.reason, failure.message))
        else:
            meant = make_pointer(wanted, wanted.digest or "", CacheState.FAILED, failure.reason, failure.message)
        self._failures[wanted.ref] = _UnpersistedFailure(meant, stands)

    def overlay(self, known: Mapping[CacheRef, Observed]) -> dict[CacheRef, Observed]:
        """Return what is known, with these failures in the place of what the disk still says."""
        said = dict(known)
        for ref, unsaid in self._failures.items():
            if ref in said and said[ref].pointer == unsaid.on_disk:
                said[ref] = replace(said[ref], pointer=unsaid.intended)
        return said

    def retain_only(self, refs: Container[CacheRef]) -> None:
        """Forget every cache that is not among `refs`."""
        self._failures = {ref: unsaid for ref, unsaid in self._failures.items() if ref in refs}
