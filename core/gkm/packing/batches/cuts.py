"""What no batch can exceed: for functions that never give two parts more than the whole, their sums over domains.

Such a function f has f(a) + f(b) <= f(a + b). Whatever lies in a domain of c slots then has a sum of f of c at most,
and all that is admitted a sum over all domains (calculus.md, Several runs).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np

from gkm.packing.batches.demand import Demand, Item
from gkm.packing.inventory import Integers

MAX_CUTS = 300
_MAX_SIZES = 16
_MULTIPLES = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Cut:
    """Runs that are admitted weigh no more than `capacity`: `base` has a weight by run, `step` that of each step."""

    capacity: int
    base: tuple[int, ...]
    step: tuple[int, ...]

    @property
    def tightness(self) -> float:
        """Return what all runs weigh in parts of the capacity, those that take part: 1 and less binds nothing."""
        return sum(self.base) / max(1, self.capacity)


class NodeSet(NamedTuple):
    """Free GPUs of nodes and the numbers of their domains, and the runs that may use no others."""

    free: Integers
    domains: Integers
    runs: frozenset[int]


class _Function(NamedTuple):
    """floor(x * times / size), or where `below` the largest integer that is less than x * times / size."""

    times: int
    size: int
    below: int


def cuts(node_sets: Sequence[NodeSet], demands: Sequence[Demand], pods: Sequence[int]) -> tuple[Cut, ...]:
    """Return the rows that may bind, the tightest first. `pods` has the GPUs of each run's pods."""
    found = {cut for node_set in node_sets for cut in _of_node_set(node_set, demands, pods)}
    return tuple(sorted(found, key=lambda cut: (-cut.tightness, cut.capacity, cut.base, cut.step))[:MAX_CUTS])


def _of_node_set(node_set: NodeSet, demands: Sequence[Demand], pods: Sequence[int]) -> Iterator[Cut]:
    for pod in sorted({1} | {pods[run] for run in node_set.runs}):
        slots = np.bincount(node_set.domains, weights=node_set.free // pod).astype(np.int64)
        sizes, counts = np.unique(slots[slots > 0], return_counts=True)
        # A pod of this run takes so many slots of that size of one node, whatever else is on the node.
        scale = [gpus // pod if run in node_set.runs else 0 for run, gpus in enumerate(pods)]
        for function in _functions(demands, scale):
            cut = _cut(function, demands, scale, int(_value(function, sizes) @ counts))
            if cut is not None:
                yield cut


def _functions(demands: Sequence[Demand], scale: Sequence[int]) -> Iterator[_Function]:
    """Yield functions that jump where groups of the batch do, of those sizes first of which there is most."""
    asked: dict[int, int] = {}
    for one, slots in zip(demands, scale, strict=True):
        for item in (*one.items, *one.step_items):
            if slots:
                asked[item.pods * slots] = asked.get(item.pods * slots, 0) + item.pods * slots * item.copies
    for size in sorted(asked, key=lambda size: (-asked[size], size))[:_MAX_SIZES]:
        for times in _MULTIPLES:
            yield _Function(times, size, 0)
            yield _Function(times, size, 1)
    yield _Function(1, 1, 0)


def _value(function: _Function, slots: Integers) -> Integers:
    value: Integers = (slots * function.times - function.below) // function.size
    return value


def _weight(function: _Function, items: Sequence[Item], slots: int) -> int:
    if not slots:
        return 0
    return sum((item.pods * slots * function.times - function.below) // function.size * item.copies for item in items)


def _cut(function: _Function, demands: Sequence[Demand], scale: Sequence[int], capacity: int) -> Cut | None:
    base = [_weight(function, one.items, slots) for one, slots in zip(demands, scale, strict=True)]
    step = [_weight(function, one.step_items, slots) for one, slots in zip(demands, scale, strict=True)]
    if sum(base) + sum(one.steps * weight for one, weight in zip(demands, step, strict=True)) <= capacity:
        return None
    common = gcd(*base, *step)
    return Cut(
        capacity // common, tuple(weight // common for weight in base), tuple(weight // common for weight in step)
    )
