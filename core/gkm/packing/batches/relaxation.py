"""The batch without its geometry: GPUs by run, and cuts that every batch satisfies, so that it bounds every batch.

A cut sums a function f with f(a) + f(b) <= f(a + b). Whatever lies in a domain of c slots then has a sum of f of c at
most, and all that is admitted a sum over all domains (calculus.md, Several runs).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.batches.instance import Instance
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.placement import fits
from gkm.packing.plan import plan
from gkm.packing.values import Plan, Request


class Item(NamedTuple):
    """Pods that lie in one domain together, and how many such items there are."""

    pods: int
    copies: int


@dataclass(frozen=True, slots=True)
class Demand:
    """A run that is admitted has at most `gpus`, for which it needs the `items`; each of up to `steps` more needs more.

    A step is worth `step_gpus` and needs the `step_items`; only runs that may be smaller have any. A run that does not
    fit alone has 0 GPUs.
    """

    gpus: int
    items: tuple[Item, ...] = ()
    step_gpus: int = 0
    step_items: tuple[Item, ...] = ()
    steps: int = 0

    @property
    def most(self) -> int:
        """Return the most GPUs that the run can have."""
        return self.gpus + self.steps * self.step_gpus


def demand(offer: Capacity, request: Request) -> Demand:
    """Return what a run asks for that may use what is offered.

    Raises:
        TooLargeError: the run and the inventory are together too large to be solved exactly.
    """
    largest = _largest_alone(offer, request)
    if not largest:
        return Demand(0)
    if request.malleability is None:
        return Demand(largest, _items(request, largest))
    group = request.group_gpus
    step = request.size_step
    smallest = largest - replace(request, gpus=largest).size_steps * step
    if smallest == largest:
        return Demand(largest, _items(request, largest))
    # Pods of a last group that is short are given for nothing, so that the sizes between are steps of whole groups.
    short = largest % group if step % group == 0 else group - request.pod_gpus
    whole, steps = smallest // group, largest // group - smallest // group
    return Demand(
        min(largest, whole * group + short),
        _items(request, whole * group),
        group if steps else 0,
        _items(request, group),
        steps,
    )


def _items(request: Request, gpus: int) -> tuple[Item, ...]:
    """Return what must lie in one domain each: spares of a run that may spread can lie anywhere, each for itself."""
    pods, group = gpus // request.pod_gpus, request.group_pods
    spares = -(-pods // group) * request.spares
    items = [Item(group, pods // group), Item(pods % group, 1), Item(1, spares)]
    if not request.may_spread:
        items = [Item(pods + spares, 1)]
    return tuple(item for item in items if item.pods and item.copies)


def _largest_alone(offer: Capacity, request: Request) -> int:
    """Return the GPUs that the run has at most where no other is planned."""
    if request.malleability is None:
        return request.gpus if fits(offer, request) else 0
    alone = plan(offer.inventory, request, "")
    return alone.gpus if isinstance(alone, Plan) else 0


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


_MAX_NODE_SETS = 16


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Runs have the numbers of the instance. `levels` has those of each priority that fit alone, the highest first."""

    demands: tuple[Demand, ...]
    cuts: tuple[Cut, ...]
    priorities: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]


def relaxation(instance: Instance) -> Relaxation:
    """Return the relaxation of a batch.

    Raises:
        TooLargeError: a run and its inventory are together too large to be solved exactly.
    """
    whole = instance.union
    demands: list[Demand] = []
    masks: list[NDArray[np.bool_]] = []
    for run, use in zip(instance.runs, instance.uses, strict=True):
        offer = capacity(instance.inventories[use], run.request)
        demands.append(demand(offer, run.request))
        masks.append(_mask(whole, offer))
    priorities = tuple(sorted({run.priority for run in instance.runs}, reverse=True))
    levels = tuple(
        tuple(number for number, run in enumerate(instance.runs) if run.priority == priority and demands[number].gpus)
        for priority in priorities
    )
    pods = [run.request.pod_gpus for run in instance.runs]
    return Relaxation(tuple(demands), cuts(_node_sets(whole, masks), demands, pods), priorities, levels)


def _mask(whole: Inventory, offer: Capacity) -> NDArray[np.bool_]:
    """Return which of all nodes a run may use."""
    if offer.inventory is whole:
        return offer.node_kinds >= 0
    mask = np.zeros(len(whole.nodes), dtype=np.bool_)
    mask[[whole.numbers[node.name] for node in offer.inventory.nodes]] = offer.node_kinds >= 0
    return mask


def _node_sets(whole: Inventory, masks: Sequence[NDArray[np.bool_]]) -> list[NodeSet]:
    """Return all nodes with all runs, and each set of nodes that runs may use with the runs that have no others."""
    domains = whole.domain_of
    distinct = {mask.tobytes(): mask for mask in masks}
    everything = np.ones(len(whole.nodes), dtype=np.bool_)
    distinct.pop(everything.tobytes(), None)
    within = {
        key: frozenset(run for run, mask in enumerate(masks) if not (mask & ~wide).any())
        for key, wide in distinct.items()
    }
    # Those that most runs compete for; names of runs decide between equals, for the order of nodes must not.
    keys = sorted(within, key=lambda key: (-len(within[key]), sorted(within[key])))[:_MAX_NODE_SETS]
    return [
        NodeSet(whole.free, domains, frozenset(range(len(masks)))),
        *(NodeSet(whole.free[distinct[key]], domains[distinct[key]], within[key]) for key in keys),
    ]
