"""The domains that a plan uses, as bars that a person can compare. Pure: what is drawn, not how."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Place


class Parts(NamedTuple):
    """GPUs of a domain: of the plan's groups, of its spares, those that others use, and those that stay free."""

    groups: int
    spares: int
    others: int
    free: int

    @property
    def total(self) -> int:
        """Return all of them."""
        return sum(self)


class Row(NamedTuple):
    """A domain of a plan. One without groups only lends room to spares, and strands nothing."""

    place: Place
    groups: int
    gpus: Parts


def rows(groups: Sequence[Group], inventory: Inventory) -> list[Row]:
    """Return the domains with groups or spares, by place; GPUs are those of nodes that the run may use."""
    count: Counter[Place] = Counter(group.place for group in groups)
    taken: Counter[Place] = Counter()
    spare: Counter[Place] = Counter()
    for group in groups:
        taken[group.place] += group.gpus
        for each in group.spares:
            spare[each.place] += each.gpus
    return [
        Row(place, count[place], Parts(taken[place], spare[place], total - free, free - taken[place] - spare[place]))
        for place, free, total in _domains(inventory, {*taken, *spare})
    ]


def _domains(inventory: Inventory, wanted: set[Place]) -> Iterator[tuple[Place, int, int]]:
    for number, place in enumerate(inventory.places):
        if place in wanted:
            nodes = [inventory.nodes[at] for at in inventory.in_domain(number)]
            yield place, sum(node.free for node in nodes), sum(node.total for node in nodes)


def cell_gpus(drawn: Sequence[Row], width: int) -> int:
    """Return how many GPUs one cell stands for, so that the largest domain has at most `width` cells."""
    return max(1, -(-max((row.gpus.total for row in drawn), default=1) // max(1, width)))


def cells(parts: Parts, each: int) -> Parts:
    """Return a domain's parts in cells of so many GPUs.

    What is there at all has a cell, and else parts are rounded so that together they are as long as the domain is.
    """
    length = max(-(-parts.total // each), sum(part > 0 for part in parts))
    found = [max(part // each, 1) if part else 0 for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda at: (-(parts[at] % each), at))
    for at in by_rest:
        if sum(found) < length and parts[at] > each:
            found[at] += 1
    while sum(found) > length:
        longest = max(range(len(parts)), key=found.__getitem__)
        found[longest] -= 1
    return Parts(*found)


def common(places: Sequence[Place]) -> int:
    """Return how many first names all places share, their domains' own names left aside."""
    return next((level for level in range(3) if len({place[level] for place in places}) > 1), 2)
