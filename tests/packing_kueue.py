"""Kueue's BestFit with a preferred block and slices of a domain, restated from its description: a peer.

Slices are counted from the bottom up: pods by node, whole groups by domain, their sum by block. One block is taken
where one holds the run: the one with the fewest slices that suffice. Else blocks are taken by slices, the largest
first, and the last is the smallest that suffices for what remains; then domains alike, of all these blocks together.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gkm.packing.values import Node, Place, Request
from packing_m2 import Peer


class _Unit(NamedTuple):
    """A block or a domain, and how many whole groups and pods it takes."""

    slices: int
    pods: int
    key: tuple[str, ...]


def best_fit(nodes: Sequence[Node], request: Request) -> Peer:
    """Place the groups of a run. It knows no spares, scopes or short groups: these count as whole ones."""
    pods: Counter[Place] = Counter()
    for node in nodes:
        pods[node.place] += node.free // request.pod_gpus
    domains = [_Unit(count // request.group_pods, count, place) for place, count in pods.items()]
    blocks = [_summed(domains, key) for key in {unit.key[:3] for unit in domains}]
    chosen = {unit.key for unit in _taken(blocks, request.groups)}
    remaining, groups = request.groups, dict[Place, int]()
    for unit in _taken([unit for unit in domains if unit.key[:3] in chosen], request.groups):
        groups[Place(*unit.key)] = min(unit.slices, remaining)
        remaining -= min(unit.slices, remaining)
    return Peer(groups, complete=not remaining)


def _summed(domains: Sequence[_Unit], key: tuple[str, ...]) -> _Unit:
    """Return a block of the domains that lie in it."""
    inside = [unit for unit in domains if unit.key[:3] == key]
    return _Unit(sum(unit.slices for unit in inside), sum(unit.pods for unit in inside), key)


def _taken(units: Sequence[_Unit], wanted: int) -> list[_Unit]:
    """Return units, the largest first, until they suffice; the last one is the smallest that does."""
    order = sorted((unit for unit in units if unit.slices), key=lambda unit: (-unit.slices, unit.pods, unit.key))
    found: list[_Unit] = []
    while order and wanted > 0:
        sufficient = [unit for unit in order if unit.slices >= wanted]
        chosen = min(sufficient, key=lambda unit: (unit.slices, unit.pods, unit.key)) if sufficient else order[0]
        order.remove(chosen)
        found.append(chosen)
        wanted -= chosen.slices
    return found
