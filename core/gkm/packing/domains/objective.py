"""The costs of a plan as one integer: comparing integers compares costs in the order of the policy (calculus.md).

Each cost has a field of bits wide enough for its largest sum, so fields never run into each other, and two sums compare
at the first field in which they differ. What a plan pays once for a region, a cluster or a block is added once for each
(knapsack.py); what it pays for a domain, its free GPUs and groups with spares elsewhere is part of an option.
"""

from enum import StrEnum
from typing import NamedTuple

from gkm.packing.values import Policy


class CostPart(StrEnum):
    """A part of the cost of a plan, by its name in `Costs` (calculus.md, Objective)."""

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


class Costs(NamedTuple):
    """A number for each part of the cost of a plan: the most that a plan has of it, or the weight of one."""

    spares: int
    domains: int
    gpus: int
    blocks: int
    clusters: int
    regions: int


class Objective(NamedTuple):
    """What one of each part costs. The sum of a whole plan is below `impossible`. `first` is the cost after spares.

    Where `impossible` takes more than 62 bits, sums are Python's integers: exact at any size, and slow (knapsack.py).
    """

    weights: Costs
    first: int
    impossible: int


def objective(policy: Policy, limits: Costs) -> Objective:
    """Return weights whose sums compare as the policy does, as long as no part of a sum exceeds its limit."""
    weights: dict[str, int] = {}
    shift = 0
    for part in reversed(ORDERS[policy]):
        weights[part.value] = 1 << shift
        shift += int(getattr(limits, part)).bit_length()
    return Objective(Costs(**weights), weights[ORDERS[policy][1]], 1 << shift)
