"""The domains of a plan as bars of comparable length. Pure: computes the bars; gkm_cli.plan.terminal draws them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gkm.packing.inventory import Inventory
from gkm.packing.values import Group, Location


class DomainGpus(NamedTuple):
    """The GPUs of a domain: of the plan's groups, of its spares, used by others, and free."""

    groups: int
    spares: int
    others: int
    free: int

    @property
    def total(self) -> int:
        """Return the sum."""
        return sum(self)


class DomainRow(NamedTuple):
    """A domain of a plan. A domain without groups holds spares only, and strands no GPU."""

    place: Location
    groups: int
    gpus: DomainGpus


def domain_rows(groups: Sequence[Group], inventory: Inventory) -> list[DomainRow]:
    """Return the domains with groups or spares, by location. They count GPUs of usable nodes only."""
    count: Counter[Location] = Counter(group.place for group in groups)
    used: Counter[Location] = Counter()
    spare: Counter[Location] = Counter()
    for group in groups:
        used[group.place] += group.gpus
        for each in group.spares:
            spare[each.place] += each.gpus
    return [
        DomainRow(
            place, count[place], DomainGpus(used[place], spare[place], total - free, free - used[place] - spare[place])
        )
        for place, free, total in _domains(inventory, {*used, *spare})
    ]


def _domains(inventory: Inventory, wanted: set[Location]) -> Iterator[tuple[Location, int, int]]:
    for number, place in enumerate(inventory.places):
        if place in wanted:
            nodes = [inventory.nodes[at] for at in inventory.in_domain(number)]
            yield place, sum(node.free for node in nodes), sum(node.total for node in nodes)


def cell_gpus(rows: Sequence[DomainRow], width: int) -> int:
    """Return the number of GPUs for one cell, so that the largest domain has at most `width` cells."""
    return max(1, -(-max((row.gpus.total for row in rows), default=1) // max(1, width)))


def cells(parts: DomainGpus, each: int) -> DomainGpus:
    """Return a domain's parts in cells of `each` GPUs.

    A part that is not empty has at least one cell. Rounding preserves the length of the whole domain.
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
    return DomainGpus(*found)


def common_levels(places: Sequence[Location]) -> int:
    """Return the number of leading names that all locations share, not counting the name of the domain."""
    return next((level for level in range(3) if len({place[level] for place in places}) > 1), 2)
