"""Runs that arrive and end on a busy NVL72 cluster, from a seed (a loss system: a run that does not fit is lost).

Poisson arrivals; holding times are lognormal(0, 1) scaled to mean 1. Pods are whole nodes of 4 GPUs.
"""

import math
import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from gkm.packing.inventory import Inventory
from gkm.packing.values import Location, Node, Policy, Request

DOMAINS, NODES_A_DOMAIN, DOMAINS_A_BLOCK, NODE_GPUS = 139, 18, 8, 4
NODES = DOMAINS * NODES_A_DOMAIN


class Size(NamedTuple):
    """Groups, nodes of a group, and the share of such runs in percent."""

    groups: int
    nodes: int
    weight: int


SIZES = tuple(
    Size(*size)
    for size in (
        *((1, 1, 40), (1, 2, 14), (1, 4, 12), (1, 8, 9), (1, 16, 8), (1, 18, 2)),
        *((2, 8, 4), (2, 16, 4), (4, 4, 2), (4, 16, 2), (8, 4, 3)),
    )
)


@dataclass(frozen=True)
class Arrival:
    """A run. Times are in mean holding times."""

    at: float
    holding: float
    size: Size

    @property
    def nodes(self) -> int:
        return self.size.groups * self.size.nodes

    @property
    def gpu_hours(self) -> float:
        return self.nodes * NODE_GPUS * self.holding

    def request(self, policy: Policy = Policy.FEWEST_DOMAINS) -> Request:
        return Request(self.nodes * NODE_GPUS, NODE_GPUS, self.size.nodes * NODE_GPUS, policy=policy)


def arrivals(seed: int, load: float, warm_up: int, count: int) -> list[Arrival]:
    """Return `count` runs after a warm-up.

    Time is stretched a little, so that the offered load after the warm-up is exactly `load` of the cluster: with few
    thousand runs chance alone would make it a twentieth more or less, which would hide the difference.
    """
    chance = random.Random(f"stream {seed}")
    weights = [size.weight for size in SIZES]
    mean = sum(size.groups * size.nodes * size.weight for size in SIZES) / sum(weights)
    found: list[Arrival] = []
    now = 0.0
    for _ in range(warm_up + count):
        now += chance.expovariate(load * NODES / mean)
        size = chance.choices(SIZES, weights)[0]
        found.append(Arrival(now, math.exp(chance.gauss(0, 1) - 0.5), size))
    offered = sum(run.gpu_hours for run in found[warm_up:]) / (found[-1].at - found[warm_up].at)
    stretch = offered / (load * NODES * NODE_GPUS)
    return [replace(run, at=run.at * stretch) for run in found]


def empty_cluster(domains: int = DOMAINS) -> Inventory:
    """Return the cluster before the first run."""
    nodes = []
    for number in range(domains * NODES_A_DOMAIN):
        domain = number // NODES_A_DOMAIN
        place = Location("region-1", "cluster-1", f"block-{domain // DOMAINS_A_BLOCK:04}", f"domain-{domain:05}")
        nodes.append(Node(f"node-{number:06}", place, NODE_GPUS, NODE_GPUS))
    return Inventory.from_nodes(nodes)
