"""The costs of a plan as one integer: comparing integers compares costs in the order of the policy (calculus.md).

Each cost has a field of bits wide enough for its largest sum, so fields never run into each other, and two sums compare
at the first field in which they differ. What a plan pays once for a region, a cluster or a block is added once for each
(knapsack.py); what it pays for a domain, its free GPUs and groups with spares elsewhere is part of an option.
"""

from dataclasses import dataclass
from typing import NamedTuple

from gkm.packing.values import Policy

INT64_BITS = 62
"""A sum of costs takes 62 bits at most: the sum that stands for "impossible" and one more cost stay within int64."""


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

    `fits_int64` is False where that takes more than 62 bits: then Python's integers do it, exact at any size, slowly.
    """

    spare: int
    domain: int
    gpu: int
    block: int
    cluster: int
    region: int
    first: int
    impossible: int

    @property
    def fits_int64(self) -> bool:
        """Return whether every sum of a plan is an int64."""
        return self.impossible <= 1 << INT64_BITS


ORDERS: dict[Policy, tuple[str, ...]] = {
    Policy.FEWEST_DOMAINS: ("spares", "domains", "regions", "clusters", "gpus", "blocks"),
    Policy.FEWEST_BLOCKS: ("spares", "blocks", "regions", "clusters", "domains", "gpus"),
    Policy.LEAST_WASTE: ("spares", "gpus", "regions", "clusters", "domains", "blocks"),
}


def objective(policy: Policy, limits: CostLimits) -> Objective:
    """Return costs whose sums compare as the policy does, as long as no part of a sum exceeds its limit."""
    weights: dict[str, int] = {}
    shift = 0
    for part in reversed(ORDERS[policy]):
        weights[part] = 1 << shift
        shift += int(getattr(limits, part)).bit_length()
    return Objective(
        weights["spares"],
        weights["domains"],
        weights["gpus"],
        weights["blocks"],
        weights["clusters"],
        weights["regions"],
        first=weights[ORDERS[policy][1]],
        impossible=1 << shift,
    )
