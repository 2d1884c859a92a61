"""Inventories of 10,000 and 100,000 GPUs as busy clusters leave them, from a seed, and runs to plan on them.

Nodes in order, 18 a domain, 8 domains a block. A domain is empty (12 %), full (10 %), or busy by Beta(2, 2); its nodes,
in random order, are filled until that is reached: four of five wholly, one of five with a random part.
"""

import random
from dataclasses import dataclass
from functools import cache

from gkm.packing.values import Location, Node, Policy, Request

NODES_A_DOMAIN, DOMAINS_A_BLOCK = 18, 8
_EMPTY, _FULL, _WHOLLY = 0.12, 0.10, 0.8


@dataclass(frozen=True)
class Shape:
    """How many nodes there are, and how many GPUs each has."""

    nodes: int
    node_gpus: int


@dataclass(frozen=True)
class Run:
    """So many groups of so many GPUs, in pods of a whole node."""

    inventory: str
    groups: int
    group_gpus: int

    def request(self, policy: Policy = Policy.FEWEST_DOMAINS, *, spares: int = 0, short_by: int = 0) -> Request:
        """Return it as a request. `short_by` pods are missing from the last group."""
        pod = SHAPES[self.inventory].node_gpus
        gpus = self.groups * self.group_gpus - short_by * pod
        return Request(gpus, pod, self.group_gpus, spares=spares, policy=policy)

    def __str__(self) -> str:
        return f"{self.inventory} {self.groups}x{self.group_gpus}"


SHAPES = {
    "h100_10k": Shape(1_250, 8),
    "nvl72_10k": Shape(2_502, 4),
    "h100_100k": Shape(12_500, 8),
    "nvl72_100k": Shape(25_002, 4),
}
_SIZES = {
    "h100_10k": ((8, 64), (256, 16), (8, 128)),
    "nvl72_10k": ((8, 64), (8, 16), (64, 16), (64, 32)),
    "h100_100k": ((8, 64), (64, 64), (256, 16), (1024, 16), (8, 128)),
    "nvl72_100k": ((8, 64), (8, 16), (64, 16), (64, 32), (256, 16), (1024, 16)),
}
RUNS = tuple(Run(name, groups, gpus) for name, sizes in _SIZES.items() for groups, gpus in sizes)


@cache
def inventory(name: str, seed: int = 1) -> tuple[Node, ...]:
    """Return the nodes of a shape by its name, the same for the same seed."""
    return generated(SHAPES[name], random.Random(f"{name} {seed}"))


def generated(shape: Shape, chance: random.Random) -> tuple[Node, ...]:
    """Return nodes of a shape, domain after domain."""
    found: list[Node] = []
    for first in range(0, shape.nodes, NODES_A_DOMAIN):
        count = min(NODES_A_DOMAIN, shape.nodes - first)
        domain = first // NODES_A_DOMAIN
        place = Location("region-1", "cluster-1", f"block-{domain // DOMAINS_A_BLOCK:04}", f"domain-{domain:05}")
        used = _used(count, shape.node_gpus, chance)
        found += [
            Node(f"node-{first + index:06}", place, shape.node_gpus, shape.node_gpus - used[index])
            for index in range(count)
        ]
    return tuple(found)


def _occupancy(chance: random.Random) -> float:
    """Return the part of a domain that others use."""
    drawn = chance.random()
    if drawn < _EMPTY:
        return 0.0
    if drawn < _EMPTY + _FULL:
        return 1.0
    return chance.betavariate(2, 2)


def _used(nodes: int, node_gpus: int, chance: random.Random) -> list[int]:
    """Return how many GPUs of each node others use."""
    used = [0] * nodes
    wanted = round(_occupancy(chance) * nodes * node_gpus)
    if wanted == nodes * node_gpus:
        return [node_gpus] * nodes
    for index in chance.sample(range(nodes), nodes):
        if wanted <= 0:
            break
        part = node_gpus if chance.random() < _WHOLLY else chance.randint(1, node_gpus)
        used[index] = min(part, wanted)
        wanted -= used[index]
    return used
