"""The costs of a plan as one integer: comparing integers compares costs in the order of the policy (calculus.md).

Each cost has a field of bits wide enough for its largest sum, so fields never run into each other, and two sums compare
at the first field in which they differ. What a plan pays once for a region, a cluster or a block is added once for each
(knapsack.py); what it pays for a domain, its free GPUs and groups with spares elsewhere is part of an option.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gkm.packing.values import Policy


class CostPart(StrEnum):
    """A part of the cost of a plan, by its name in `CostLimits` (calculus.md, Objective)."""

    SPARES_ELSEWHERE = "spares"
    DOMAINS = "domains"
    BLOCKS = "blocks"
    CLUSTERS = "clusters"
    REGIONS = "regions"
    STRANDED = "gpus"


_FIRST = {
    Policy.FEWEST_DOMAINS: (CostPart.DOMAINS, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.STRANDED, CostPart.BLOCKS),
    Policy.FEWEST_BLOCKS: (CostPart.BLOCKS, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.DOMAINS, CostPart.STRANDED),
    Policy.LEAST_WASTE: (CostPart.STRANDED, CostPart.REGIONS, CostPart.CLUSTERS, CostPart.DOMAINS, CostPart.BLOCKS),
}
ORDERS = {policy: (CostPart.SPARES_ELSEWHERE, *parts) for policy, parts in _FIRST.items()}
"""The parts of the cost in the order in which a policy compares them."""


class CostLimits(NamedTuple):
    """The most that a plan can have of each cost."""

    spares: int
    domains: int
    gpus: int
    blocks: int
    clusters: int
    regions: int


@dataclass(frozen=True, slots=True)
class Objective:
    """What one of each costs. The sum of a whole plan is below `impossible`. `first` is the cost after spares.

    Where `impossible` takes more than 62 bits, sums are Python's integers: exact at any size, and slow (knapsack.py).
    """

    spare: int
    domain: int
    gpu: int
    block: int
    cluster: int
    region: int
    first: int
    impossible: int


def objective(policy: Policy, limits: CostLimits) -> Objective:
    """Return costs whose sums compare as the policy does, as long as no part of a sum exceeds its limit."""
    weights: dict[CostPart, int] = {}
    shift = 0
    for part in reversed(ORDERS[policy]):
        weights[part] = 1 << shift
        shift += int(getattr(limits, part)).bit_length()
    return Objective(
        spare=weights[CostPart.SPARES_ELSEWHERE],
        domain=weights[CostPart.DOMAINS],
        gpu=weights[CostPart.STRANDED],
        block=weights[CostPart.BLOCKS],
        cluster=weights[CostPart.CLUSTERS],
        region=weights[CostPart.REGIONS],
        first=weights[ORDERS[policy][1]],
        impossible=1 << shift,
    )
