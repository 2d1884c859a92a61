"""What a domain can take: for each number of groups whose spares must leave, the most groups (calculus.md)."""

from typing import NamedTuple

from gkm.packing.domains.costs import Costs
from gkm.packing.values import Request

WHOLE = -1


class Option(NamedTuple):
    """Taking up to so many groups, by scope (or axis of the table), at a cost.

    `short` is the scope in which the short last group is one of them, WHOLE where all of them are whole. `needs` and
    `away` are for `overlapping` alone, and with them it is exactly so many groups: what is asked of other domains, and
    how many groups of each scope have spares that may leave.
    """

    groups: tuple[int, ...]
    short: int
    cost: int
    needs: tuple[int, ...] = ()
    away: tuple[int, ...] = ()


class Shape(NamedTuple):
    """Sizes of a run's groups in pods: of a whole one, its spares, and how many pods the last group has less."""

    pods: int
    spares: int
    missing: int


def shape(request: Request) -> Shape:
    """Return the sizes of a request's groups."""
    return Shape(request.group_pods, request.spares, request.group_pods - request.last_pods)


def steps(slots: int, shape: Shape, *, short: bool, leave: bool, most: int | None = None) -> list[tuple[int, int]]:
    """Return (most groups, groups whose spares leave) of a domain, both rising; nothing where no group fits.

    With `short` the last group is one of them. Without `leave` all spares stay. No more than `most` are wanted. A step
    less would not cost less, so anything between two steps is served by the higher one.
    """
    room = slots + (shape.missing if short else 0)
    unit = shape.pods + shape.spares
    highest = room // (shape.pods if leave else unit)
    if most is not None:
        highest = min(highest, most)
    found: list[tuple[int, int]] = []
    groups = min(room // unit, highest)
    if groups:
        found.append((groups, 0))
    while groups < highest:
        # The fewest that must leave for one group more; what that makes room for may be several.
        leaving = -(-((groups + 1) * unit - room) // shape.spares)
        groups = min((room + leaving * shape.spares) // unit, highest)
        found.append((groups, leaving))
    return found


def options(slots: int, gpus: int, shape: Shape, costs: Costs, *, leave: bool) -> list[Option]:
    """Return what a domain with these slots and free GPUs can take; empty where no group fits."""
    base = costs.domain + gpus * costs.gpu
    found = [
        Option((groups,), WHOLE, base + leaving * costs.spare)
        for groups, leaving in steps(slots, shape, short=False, leave=leave)
    ]
    if shape.missing:
        found += [
            Option((groups,), 0, base + leaving * costs.spare)
            for groups, leaving in steps(slots, shape, short=True, leave=leave)
        ]
    return found
