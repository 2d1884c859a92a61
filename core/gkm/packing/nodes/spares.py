"""Where the spares go that must leave the domain of their group: as near as they can (calculus.md).

A level is left only when it is full, so at no level fewer could stay. Within a level the domains that the run uses come
first, because what they keep free is stranded; then keys decide, and in a domain the node with the fewest slots left.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gkm.packing.values import Distance, Location

_LEVELS = ((Distance.BLOCK, 3), (Distance.CLUSTER, 2), (Distance.REGION, 1), (Distance.NONE, 0))


class Leaving(NamedTuple):
    """A spare without a slot in the domain of its group. `scope` is that which pays for the group."""

    group: int
    place: Location
    scope: int


class Room(NamedTuple):
    """A node with slots left. `used` says whether groups of the run are in its domain."""

    node: str
    place: Location
    slots: int
    used: bool
    scopes: frozenset[int]


class Placed(NamedTuple):
    """Where a spare went."""

    group: int
    node: str
    place: Location
    distance: Distance


def place_spares(leaving: Sequence[Leaving], rooms: Iterable[Room]) -> list[Placed] | None:
    """Return a place for every spare, in the order given; None if there are too few slots within reach of one."""
    if not leaving:
        return []
    ordered = sorted(rooms, key=lambda room: (not room.used, room.place, room.slots, room.node))
    left = [room.slots for room in ordered]
    placed: list[Placed | None] = [None] * len(leaving)
    for distance, shared in _LEVELS:
        near = _by_prefix(ordered, shared)
        cursors: dict[tuple[tuple[str, ...], int], int] = {}
        for number, spare in enumerate(leaving):
            if placed[number] is None:
                prefix = spare.place[:shared]
                found = _first(near.get(prefix, ()), cursors, (prefix, spare.scope), ordered, left)
                if found is not None:
                    left[found] -= 1
                    room = ordered[found]
                    placed[number] = Placed(spare.group, room.node, room.place, distance)
    return None if None in placed else [spare for spare in placed if spare is not None]


def _by_prefix(rooms: Sequence[Room], shared: int) -> Mapping[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for index, room in enumerate(rooms):
        found.setdefault(room.place[:shared], []).append(index)
    return found


def _first(
    near: Sequence[int],
    cursors: dict[tuple[tuple[str, ...], int], int],
    key: tuple[tuple[str, ...], int],
    rooms: Sequence[Room],
    left: Sequence[int],
) -> int | None:
    """Return the first room with a slot. Rooms only ever fill, so each is passed once for each place and scope."""
    at = cursors.get(key, 0)
    while at < len(near) and not (left[near[at]] and key[1] in rooms[near[at]].scopes):
        at += 1
    cursors[key] = at
    return near[at] if at < len(near) else None
