"""Kueue's two ways to place slices of a domain in blocks, restated from what they do: peers.

Slices are counted from the bottom up: pods by node, whole groups by domain, their sum by block. One block is taken
where one holds the run: the one with the fewest slices that suffice. Else blocks are taken by slices, the largest
first, and the last is the smallest that suffices for what remains; then domains alike, of all these blocks together.

That is BestFit, for a run that prefers a block. A run that names no level beside that of its slices gets the least free
capacity: one block that suffices as before, else blocks the smallest first; then domains the smallest first.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gkm.packing.values import Location, Node, Request
from support.packing.m2 import Peer


class _Unit(NamedTuple):
    """A block or a domain, and how many whole groups and pods it takes."""

    slices: int
    pods: int
    key: tuple[str, ...]


def best_fit(nodes: Sequence[Node], request: Request) -> Peer:
    """Place the groups of a run. It knows no spares, scopes or short groups: these count as whole ones."""
    return _placed(nodes, request, _largest_first, _largest_first)


def least_free(nodes: Sequence[Node], request: Request) -> Peer:
    """Place the groups of a run that names no level beside its slices'. It knows as little as `best_fit`."""
    return _placed(nodes, request, _one_or_smallest_first, _smallest_first)


_Choose = Callable[[Sequence[_Unit], int], list[_Unit]]


def _placed(nodes: Sequence[Node], request: Request, choose_blocks: _Choose, choose_domains: _Choose) -> Peer:
    pods: Counter[Location] = Counter()
    for node in nodes:
        pods[node.place] += node.free // request.pod_gpus
    domains = [_Unit(count // request.group_pods, count, place) for place, count in pods.items()]
    chosen = {unit.key for unit in choose_blocks(_blocks(domains), request.groups)}
    remaining, groups = request.groups, dict[Location, int]()
    for unit in choose_domains([unit for unit in domains if unit.key[:3] in chosen], request.groups):
        groups[Location(*unit.key)] = min(unit.slices, remaining)
        remaining -= min(unit.slices, remaining)
    return Peer(groups, complete=not remaining)


def _blocks(domains: Sequence[_Unit]) -> list[_Unit]:
    """Return the blocks that the domains lie in."""
    slices, pods = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for unit in domains:
        slices[unit.key[:3]] += unit.slices
        pods[unit.key[:3]] += unit.pods
    return [_Unit(slices[key], pods[key], key) for key in pods]


def _largest_first(units: Sequence[_Unit], wanted: int) -> list[_Unit]:
    """Return units, the largest first, until they suffice; the last one is the smallest that does."""
    order = sorted((unit for unit in units if unit.slices), key=lambda unit: (-unit.slices, unit.pods, unit.key))
    found: list[_Unit] = []
    for number, unit in enumerate(order):
        if unit.slices >= wanted:
            sufficient = [other for other in order[number:] if other.slices >= wanted]
            return [*found, min(sufficient, key=lambda other: (other.slices, other.pods, other.key))]
        found.append(unit)
        wanted -= unit.slices
    return found


def _one_or_smallest_first(units: Sequence[_Unit], wanted: int) -> list[_Unit]:
    """Return the smallest unit that suffices alone, else units, the smallest first, until they do."""
    return _smallest_first([unit for unit in units if unit.slices >= wanted] or units, wanted)


def _smallest_first(units: Sequence[_Unit], wanted: int) -> list[_Unit]:
    """Return units, the smallest first, until they suffice."""
    found: list[_Unit] = []
    for unit in sorted(units, key=lambda unit: (unit.slices, unit.pods, unit.key)):
        if unit.slices and wanted > 0:
            found.append(unit)
            wanted -= unit.slices
    return found
