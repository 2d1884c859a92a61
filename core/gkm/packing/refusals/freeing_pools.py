"""The fewest nodes to free where no node is in several scopes: exact, or not at all (calculus.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.options import Shape
from gkm.packing.inventory import Integers
from gkm.packing.refusals.feasible import ceilings
from gkm.packing.refusals.freeing_tables import Cell, Choice, Tables, affordable
from gkm.packing.values import Request


class Row(NamedTuple):
    """A domain as one scope sees it: its slots, and the nodes that give more when they are freed, the best first."""

    domain: int
    slots: int
    nodes: tuple[int, ...]
    gains: tuple[int, ...]


Line = tuple[tuple[int, ...], list[Choice]]
"""Nodes in the order in which they are freed, and what freeing some of them gives."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The domains of one scope. `given` are the pods that its ceiling allows."""

    given: int
    rows: tuple[Row, ...]

    def groups(self, size: Shape) -> int:
        """Return how many whole groups, without spares, fit before anything is freed."""
        return sum(row.slots // size.pods for row in self.rows)

    @property
    def slots(self) -> int:
        """Return the slots that there are before anything is freed."""
        return sum(row.slots for row in self.rows)


def pools(offer: Capacity, request: Request, gains: Integers) -> list[Pool]:
    """Return the pool of each scope. `gains` are the slots that each node gives more when it is freed."""
    found = []
    names = [node.name for node in offer.inventory.nodes]
    domains = range(len(offer.inventory.places))
    slots_of, kinds = gains.tolist(), offer.node_kinds.tolist()
    busy = [node.total - node.free for node in offer.inventory.nodes]
    for scope, given in enumerate(ceilings(request)):
        kind = frozenset({scope})
        here = offer.scope_slots(kind).tolist()
        rows = []
        for domain in domains:
            members = [
                number
                for number in offer.inventory.in_domain(domain)
                if slots_of[number] and offer.kinds[kinds[number]] == kind
            ]
            members.sort(key=lambda number: (-slots_of[number], busy[number], names[number]))
            if here[domain] or members:
                rows.append(Row(domain, here[domain], tuple(members), tuple(slots_of[number] for number in members)))
        found.append(Pool(given, tuple(rows)))
    return found


def fewest(some: Sequence[Pool], request: Request, size: Shape, most: int) -> list[int] | None:
    """Return the fewest nodes that make groups of this size fit; None if too much would have to be gone through.

    With `most` 0 spares without a group's domain are not looked at: where they fit all the same, the answer is right.
    Else at most so many nodes are freed, and spares find slots in the pool of their group.
    """
    missing = size.missing > 0
    lines: list[list[Line]] = []
    made: list[Tables] = []
    offered: list[list[Choice]] = []
    cells: list[dict[Choice, Cell]] = []
    for pool in some:
        held = pool.groups(size)
        lines.append(_folded([(row.nodes, list(_choices(row, size, every=most > 0))) for row in pool.rows]))
        rows = [choices for _, choices in lines[-1]]
        wanted = max(0, min(request.groups, (pool.given + size.missing) // (size.pods + size.spares)) - held)
        if not affordable(rows, wanted, nodes=most, short=missing):
            return None
        made.append(Tables(rows, wanted, nodes=most, short=missing))
        cells.append(dict(_outcomes(made[-1], pool, request.groups, size, most)))
        offered.append(list(cells[-1]))
    if not affordable(offered, request.groups, nodes=0, short=missing):
        return None
    combined = Tables(offered, request.groups, nodes=0, short=missing)
    ends = [Cell(short, request.groups, 0) for short in range(2 if missing else 1)]
    reached = [(outcome[0], end) for end in ends if (outcome := combined.outcome(end)) is not None]
    if not reached:
        return None
    found: list[int] = []
    for number, taken in combined.read(min(reached)[1]):
        for at, choice in made[number].read(cells[number][taken]):
            found += lines[number][at][0][: choice.nodes]
    return found


def _folded(lines: Sequence[Line]) -> list[Line]:
    """Return fewer lines for the same choices: where many domains give one and the same, bundles of 1, 2, 4, ...

    Any number of them is some of the bundles. The short group is one, so that for it one domain is enough.
    """
    found: list[Line] = []
    alike: dict[Choice, list[tuple[int, ...]]] = {}
    for nodes, choices in lines:
        if len(choices) == 1:
            alike.setdefault(choices[0], []).append(nodes[: choices[0].nodes])
        elif choices:
            found.append((nodes, choices))
    for choice, each in alike.items():
        if choice.short:
            found.append((each[0], [choice]))
            continue
        size, at = 1, 0
        while at < len(each):
            bundle = each[at : at + size]
            count = len(bundle)
            together = Choice(choice.groups * count, choice.nodes * count, choice.slots * count, short=False)
            found.append((tuple(node for nodes in bundle for node in nodes), [together]))
            size, at = 2 * size, at + count
    return found


def _choices(row: Row, size: Shape, *, every: bool) -> Iterator[Choice]:
    """Yield what freeing the best nodes of a domain gives; with `every` also where it is slots alone."""
    before = row.slots // size.pods
    reached = before
    for nodes, gained in enumerate(accumulate(row.gains, initial=0)):
        slots = row.slots + gained
        whole, with_short = slots // size.pods, (slots + size.missing) // size.pods
        if nodes and (every or whole > reached):
            yield Choice(whole - before, nodes, gained if size.spares else 0, short=False)
        if with_short > whole and (every or not nodes or whole > reached or with_short > reached):
            yield Choice(with_short - before, nodes, gained if size.spares else 0, short=True)
        reached = whole


def _outcomes(tables: Tables, pool: Pool, wanted: int, size: Shape, most: int) -> Iterator[tuple[Choice, Cell]]:
    """Yield what a pool can hold in all, for each number of nodes the most groups, with the cell to read it from."""
    unit = size.pods + size.spares
    held = pool.groups(size)
    for short in range(2 if size.missing else 1):
        fewer = 1 << 32
        less = size.missing if short else 0
        for groups in range(min(wanted, (pool.given + less) // unit), short - 1, -1):
            gained = max(0, groups - held)
            if most:
                cell = tables.least(short, gained, groups * unit - less - pool.slots)
                nodes = cell.nodes if cell else fewer
            else:
                cell = Cell(short, gained, 0)
                outcome = tables.outcome(cell)
                nodes = outcome[0] if outcome else fewer
            if cell is not None and nodes < fewer:
                fewer = nodes
                yield Choice(groups, nodes, 0, short=short > 0), cell
