"""Nodes with slots left that spares could go to: no more of them than so many spares can ever look at."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.domains.capacity import Capacity
from gkm.packing.inventory import Integers
from gkm.packing.nodes.spares import Room


class Left(NamedTuple):
    """The slots that groups leave, by node, and whether a domain is used by any, by domain."""

    slots: Integers
    used: NDArray[np.bool_]


def rooms(capacity: Capacity, left: Left, departures: Integers) -> list[Room]:
    """Return the rooms that spares can go to, in the order in which they do. `departures` are spares by domain.

    Of what lies in one block, the first nodes that have as many slots together as spares come from domains of that
    block; alike of clusters, regions and all: a spare that looks further found all these taken, by more spares than
    there are. Nodes of different scopes are counted apart, since not every spare can take them.
    """
    inventory = capacity.inventory
    domain_of = np.repeat(np.arange(len(inventory.places)), np.diff(inventory.starts))
    nodes = np.flatnonzero(left.slots > 0)
    nodes = nodes[np.lexsort((nodes, left.slots[nodes], domain_of[nodes], ~left.used[domain_of[nodes]]))]
    domains, slots = domain_of[nodes], left.slots[nodes]
    needed = np.zeros(len(nodes), dtype=np.bool_)
    for areas in _areas(capacity):
        leaving = np.bincount(areas, weights=departures).astype(np.int64)[areas[domains]]
        needed |= _before(areas[domains] * len(capacity.kinds) + capacity.node_kinds[nodes], slots) < leaving
    return [
        Room(
            inventory.nodes[number].name,
            inventory.places[domain_of[number]],
            int(left.slots[number]),
            bool(left.used[domain_of[number]]),
            capacity.kinds[capacity.node_kinds[number]],
        )
        for number in nodes[needed].tolist()
    ]


def _areas(capacity: Capacity) -> Iterator[Integers]:
    """Yield the number of the block, cluster and region of each domain, and of all of them as one."""
    yield capacity.inventory.blocks
    for shared in (2, 1, 0):
        numbers: dict[tuple[str, ...], int] = {}
        found = [numbers.setdefault(place[:shared], len(numbers)) for place in capacity.inventory.places]
        yield np.array(found, dtype=np.int64)


def _before(parts: Integers, slots: Integers) -> Integers:
    """Return how many slots come before each node in its part."""
    order = np.argsort(parts, kind="stable")
    before = np.cumsum(slots[order]) - slots[order]
    first = np.searchsorted(parts[order], parts[order])
    found = np.empty_like(before)
    found[order] = before - before[first]
    return found
