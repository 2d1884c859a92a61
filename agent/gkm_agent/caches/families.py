"""Choose the member of each cache family that new pods of this node mount (docs/decisions/0046-families.md). Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gkm.hoststate.families import FamilyChoice
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer

from gkm_agent.caches.model import Membership, WantedCache

_TIERS: Final[tuple[tuple[str, Callable[[Pointer], bool]], ...]] = (
    ("Ready", lambda pointer: pointer.state is CacheState.READY),
    ("on its way", lambda pointer: pointer.is_on_its_way),
    ("Pending", lambda pointer: pointer.state is CacheState.PENDING),
)
"""A member of an earlier tier comes before all members of a later one."""


def choices(wanted: Iterable[WantedCache], pointers: Mapping[CacheRef, Pointer]) -> dict[CacheRef, FamilyChoice]:
    """Return the chosen member of each family among the wanted caches.

    `pointers` hold the state of each cache on this node.
    """
    members: dict[CacheRef, list[WantedCache]] = {}
    known = list(wanted)
    for cache in known:
        if cache.membership.family:
            members.setdefault(CacheRef(cache.ref.namespace, cache.membership.family), []).append(cache)
    for cache in known:
        if cache.ref in members and cache not in members[cache.ref]:
            members[cache.ref].append(cache)
    return {ref: _choice(ref, found, pointers) for ref, found in members.items()}


def _choice(ref: CacheRef, members: list[WantedCache], pointers: Mapping[CacheRef, Pointer]) -> FamilyChoice:
    ordered = in_order(members)
    for why, holds in _TIERS:
        for member in ordered:
            pointer = pointers.get(member.ref)
            if pointer is not None and holds(pointer):
                return FamilyChoice(ref, member.ref, _why(member, why))
    # A pod reads the reason of the cache that it names.
    named = next((member for member in ordered if member.ref == ref), ordered[0])
    return FamilyChoice(ref, named.ref, "no member is ready or on its way")


def in_order(members: Iterable[WantedCache]) -> list[WantedCache]:
    """Return the members in order of preference: pinned, then the largest generation, the newest, the first name.

    A held-back member, which made pods fail, comes after all others.
    """
    by_name = sorted(members, key=lambda member: member.ref.name)
    newest = sorted(by_name, key=lambda member: member.membership.created, reverse=True)
    return sorted(newest, key=lambda member: _rank(member.membership))


def _rank(place: Membership) -> tuple[bool, bool, int]:
    return not place.pinned, place.held_back and not place.pinned, -place.generation


def _why(member: WantedCache, state: str) -> str:
    place = member.membership
    held = ", held back" if place.held_back else ""
    return f"{'pinned' if place.pinned else f'generation {place.generation}'}, {state}{held}"
