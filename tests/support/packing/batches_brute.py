"""Small batches, judged by trying whatever there is: every size of every run, every group in every domain, every node.

It shares the values of `gkm.packing` and nothing else with the planner.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from gkm.packing.batches.batch import Batch, Queued
from gkm.packing.values import Node, Plan
from support.packing.brute import legal_sizes
from support.packing.checker import problems
from support.packing.checker_spares import better_spares

Free = tuple[int, ...]


class _Unit(NamedTuple):
    """Pods that must lie in one domain, on some of the nodes."""

    pods: int
    gpus: int
    nodes: tuple[int, ...]


def most(nodes: Sequence[Node], queue: Sequence[Queued]) -> tuple[int, ...]:
    """Return the most GPUs by priority, the highest first, that any batch has. A node of a run is one of `nodes`."""
    levels = sorted({run.priority for run in queue}, reverse=True)

    def worth(sizes: Sequence[int]) -> tuple[int, ...]:
        sized = list(zip(queue, sizes, strict=True))
        return tuple(sum(size for run, size in sized if run.priority == level) for level in levels)

    search = Search(nodes)
    choices = product(*[[*legal_sizes(run.request), 0] for run in queue])
    for sizes in sorted(choices, key=worth, reverse=True):
        units = [unit for run, size in zip(queue, sizes, strict=True) if size for unit in search.units(run, size)]
        if search.lie(search.free, tuple(sorted(units, reverse=True))):
            return worth(sizes)
    raise AssertionError("a batch of nothing always fits")


class Search:
    """Nodes, and what is known of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.free = tuple(node.free for node in nodes)
        self.numbers = {node.name: number for number, node in enumerate(nodes)}
        self.places = sorted({node.place for node in nodes})
        self.known: dict[tuple[Free, tuple[_Unit, ...]], bool] = {}

    def units(self, run: Queued, gpus: int) -> list[_Unit]:
        """Return what must lie in one domain each. A spare of a run that may spread may lie anywhere."""
        request = replace(run.request, gpus=gpus)
        own = self.nodes if run.nodes is None else run.nodes
        names = {ceiling.scope for ceiling in request.ceilings}
        usable = tuple(sorted(self.numbers[node.name] for node in own if not names or names & node.scopes))
        spares = request.groups * request.spares
        if not request.may_spread:
            return [_Unit(gpus // request.pod_gpus + spares, request.pod_gpus, usable)]
        pods = [request.group_pods] * (request.groups - 1) + [request.last_pods] + [1] * spares
        return [_Unit(count, request.pod_gpus, usable) for count in pods]

    def lie(self, free: Free, units: tuple[_Unit, ...]) -> bool:
        """Return whether there is a way to place all of the units."""
        if not units:
            return True
        key = free, units
        if key not in self.known:
            self.known[key] = any(self.lie(left, units[1:]) for left in self._ways(free, units[0]))
        return self.known[key]

    def _ways(self, free: Free, unit: _Unit) -> Iterator[Free]:
        seen = set()
        for place in self.places:
            here = [number for number in unit.nodes if self.nodes[number].place == place]
            for left in _spread(free, here, unit.pods, unit.gpus):
                if left not in seen:
                    seen.add(left)
                    yield left


def _spread(free: Free, here: Sequence[int], pods: int, gpus: int) -> Iterator[Free]:
    """Yield what is left when pods lie on some nodes, in every way."""
    if not pods:
        yield free
    elif here:
        first = here[0]
        for count in range(min(pods, free[first] // gpus), -1, -1):
            left = (*free[:first], free[first] - count * gpus, *free[first + 1 :])
            yield from _spread(left, here[1:], pods - count, gpus)


def wrong(nodes: Sequence[Node], queue: Sequence[Queued], batch: Batch) -> list[str]:
    """Return whatever is wrong with a batch: each plan is judged on what those before it leave.

    A plan that leaves GPUs reserved for a later run has all its spares, wherever they are.
    """
    runs = {run.name: run for run in queue}
    free = {node.name: node.free for run in queue for node in (nodes if run.nodes is None else run.nodes)}
    taken = {one.name: _taken(one.plan) for one in batch.admitted}
    found = []
    answered = [one.name for one in batch.admitted] + [one.name for one in batch.rejected]
    if sorted(answered) != sorted(runs):
        found.append("not every run is either admitted or rejected, and once")
    left = Counter(free)
    for one in batch.admitted:
        run = runs[one.name]
        before = [replace(node, free=left[node.name]) for node in (nodes if run.nodes is None else run.nodes)]
        better = {*better_spares(before, run.request, one.plan.groups)} if one.reserved else set()
        found += [f"{one.name}: {each}" for each in problems(before, run.request, one.plan) if each not in better]
        left.subtract(taken[one.name])
    found += [f"node {name} has {gpus} GPUs" for name, gpus in left.items() if gpus < 0]
    for reached in batch.reached:
        level = [one.plan.gpus for one in batch.admitted if runs[one.name].priority == reached.priority]
        if sum(level) != reached.admitted or reached.admitted > reached.bound:
            found.append(f"priority {reached.priority} has {sum(level)} GPUs: {reached}")
    return found


def _taken(plan: Plan) -> Counter[str]:
    """Return the GPUs that a plan takes, by node."""
    taken: Counter[str] = Counter()
    for group in plan.groups:
        for name, gpus in group.nodes:
            taken[name] += gpus
        for spare in group.spares:
            taken[spare.node] += spare.gpus
    return taken
