"""Costs that are compared one after another, as one integer (docs/design/calculus.md, Objective)."""

from dataclasses import dataclass

from gkm.packing.values import Policy

INT64_BITS = 62
"""A sum of costs takes 62 bits at most: the sum that stands for "impossible" and one more cost stay within int64."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a plan can cost, part by part: its groups' spares, domains, free GPUs in them, and blocks."""

    spares: int
    domains: int
    gpus: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What one of each costs. The sum of a whole plan is below `impossible`; fields never run into each other.

    `fits_int64` is False where that takes more than 62 bits: then Python's integers do it, exact at any size, slowly.
    """

    spare: int
    domain: int
    gpu: int
    block: int
    impossible: int

    @property
    def fits_int64(self) -> bool:
        """Return whether every sum of a plan can be an int64."""
        return self.impossible <= 1 << INT64_BITS


_ORDERS: dict[Policy, tuple[str, ...]] = {
    Policy.FEWEST_DOMAINS: ("spares", "domains", "gpus", "blocks"),
    Policy.FEWEST_BLOCKS: ("spares", "blocks", "domains", "gpus"),
    Policy.LEAST_WASTE: ("spares", "gpus", "domains", "blocks"),
}


def costs(policy: Policy, limits: Limits) -> Costs:
    """Return costs whose sums compare as the policy does, as long as no part of a sum exceeds its limit.

    A part of width w takes the values 0 to 2^w - 1, its limit among them; so a sum is its parts side by side, and two
    sums compare at the first part in which they differ.
    """
    weights: dict[str, int] = {}
    shift = 0
    for part in reversed(_ORDERS[policy]):
        weights[part] = 1 << shift
        shift += int(getattr(limits, part)).bit_length()
    return Costs(weights["spares"], weights["domains"], weights["gpus"], weights["blocks"], 1 << shift)
