"""Sums up whole free nodes by NVLink clique and GPU product. Pure.

A whole node is free if it is usable, no ComputeDomain holds its IMEX channel, and no pod on it requests GPUs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec
from gkm.api.domain_capacity import MAX_BYTES, MAX_CLIQUES, MAX_POOLS, CliqueCapacity, DomainCapacity, NodePool

from gkm_operator.computedomains.capacity.nodes import FabricNode

MAX_TEXT = MAX_BYTES * 3 // 4
"""The limit of etcd is for the whole ConfigMap, and the conditions need some of it."""

_Pool = tuple[str, int]
_Counts = list[int]


def capacity(nodes: Iterable[FabricNode], is_busy: Callable[[str], bool]) -> DomainCapacity:
    """Return the capacity; `is_busy` returns whether a pod on a node requests GPUs. The order of nodes does not matter.

    A node without a device plugin counts with 0 GPUs: DRA assigns them, and no field of the node has their number.
    """
    cliques: defaultdict[str, dict[_Pool, _Counts]] = defaultdict(dict)
    for node in nodes:
        if not node.clique and node.gpus is None:
            continue
        counts = cliques[node.clique].setdefault((node.product, node.gpus or 0), [0, 0])
        counts[0] += 1
        counts[1] += node.usable and not node.held_by and not is_busy(node.name)
    without_fabric = _pools(cliques.pop("", {}))
    found = [CliqueCapacity(name, _pools(pools)) for name, pools in cliques.items()]
    found.sort(key=lambda clique: (-clique.free, clique.name))
    return DomainCapacity(tuple(found[:MAX_CLIQUES]), without_fabric)


def capacity_text(found: DomainCapacity) -> str:
    """Return a capacity as JSON of at most MAX_TEXT bytes; the cliques with the fewest free nodes are omitted."""
    while len(text := msgspec.json.encode(found)) > MAX_TEXT:
        found = DomainCapacity(found.cliques[: len(found.cliques) // 2], found.without_fabric)
    return text.decode()


def _pools(pools: Mapping[_Pool, _Counts]) -> tuple[NodePool, ...]:
    made = [NodePool(product, gpus, *counts) for (product, gpus), counts in pools.items()]
    made.sort(key=lambda pool: (-pool.free, -pool.nodes, pool.product, pool.gpus_per_node))
    return tuple(made[:MAX_POOLS])
