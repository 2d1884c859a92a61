"""The axes of the tables where several scopes pay: one for each ceiling that can bind (calculus.md, Scopes)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.cover import Cell
from gkm.packing.domains.options import shape
from gkm.packing.values import Request


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of the table: one per scope whose ceiling can bind, one for all the others together.

    `of_scope` has the axis of each scope; `most` the most groups of each axis, `most_short` the same where the short
    last group is one of them.
    """

    of_scope: tuple[int, ...]
    most: Cell
    most_short: Cell

    def project(self, groups: Sequence[int]) -> Cell:
        """Return groups by axis of groups by scope."""
        found = [0] * len(self.most)
        for axis, count in zip(self.of_scope, groups, strict=True):
            found[axis] += count
        return tuple(found)


def axes_of(capacity: Capacity, request: Request, *, leave: bool) -> Axes:
    """Return the axes of a run. With `leave` every scope has one, since its spares need slots in it."""
    size = shape(request)
    unit = size.pods + size.spares
    wanted = request.groups * unit - size.missing
    axes: list[int] = []
    limits: list[int] = []
    rest = -1
    for scope, ceiling in enumerate(request.ceilings):
        offered = int(capacity.scope_slots(frozenset({scope})).sum())
        given = ceiling.gpus // request.pod_gpus
        # Where spares leave, their scope must have slots for them, wherever these are: as good as a ceiling.
        if given >= min(offered, wanted) and not leave:
            if rest < 0:
                rest = len(limits)
                limits.append(wanted)
            axes.append(rest)
        else:
            axes.append(len(limits))
            limits.append(min(given, offered, wanted))
    most = tuple(limit // unit for limit in limits)
    most_short = tuple(min(request.groups, (limit + size.missing) // unit) for limit in limits)
    return Axes(tuple(axes), most, most_short)
