"""Failures that the disk could not take: said from memory, for as long as the disk says nothing newer."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.decisions import Known, kept, pointer_of
from gkm_agent.desk import load_pointer
from gkm_agent.pull import Failure
from gkm_agent.values import WantedCache


@dataclass(frozen=True, slots=True)
class _Unsaid:
    """What should stand on the disk, and what stands there instead."""

    meant: Pointer
    stands: Pointer | None


class Unsaid:
    """At most one failure a cache. A full disk must not look like a cache that nobody has tried."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._failures: dict[CacheRef, _Unsaid] = {}

    def ended(self, wanted: WantedCache, failure: Failure | None) -> None:
        """Take in how a try ended; one that stands on the disk is forgotten here."""
        if failure is None or failure.noted:
            self._failures.pop(wanted.ref, None)
            return
        stands = load_pointer(self._layout, wanted.ref)
        if failure.kept and stands is not None and stands.state is CacheState.READY:
            # What pods get is decided by the disk, and that gives it to them.
            meant = replace(stands, message=kept(failure.reason, failure.message))
        else:
            meant = pointer_of(wanted, wanted.digest or "", CacheState.FAILED, failure.reason, failure.message)
        self._failures[wanted.ref] = _Unsaid(meant, stands)

    def shown(self, known: Mapping[CacheRef, Known]) -> dict[CacheRef, Known]:
        """Return what is known, with these failures in the place of what the disk still says."""
        said = dict(known)
        for ref, unsaid in self._failures.items():
            if ref in said and said[ref].pointer == unsaid.stands:
                said[ref] = replace(said[ref], pointer=unsaid.meant)
        return said

    def keep(self, refs: Container[CacheRef]) -> None:
        """Forget every cache that is not among `refs`."""
        self._failures = {ref: unsaid for ref, unsaid in self._failures.items() if ref in refs}
