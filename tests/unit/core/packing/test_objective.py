"""One integer compares as the policy does."""

from collections.abc import Callable

import pytest
from gkm.packing.domains.knapsack import INT64_BITS
from gkm.packing.domains.selection import Costs, Objective, objective
from gkm.packing.values import Policy
from hypothesis import given
from hypothesis import strategies as st

ORDERS: dict[Policy, Callable[[Costs], tuple[int, ...]]] = {
    Policy.FEWEST_DOMAINS: lambda p: (p.spares, p.domains, p.regions, p.clusters, p.gpus, p.blocks),
    Policy.FEWEST_BLOCKS: lambda p: (p.spares, p.blocks, p.regions, p.clusters, p.domains, p.gpus),
    Policy.LEAST_WASTE: lambda p: (p.spares, p.gpus, p.regions, p.clusters, p.domains, p.blocks),
}


@st.composite
def plans_within_limits(draw: st.DrawFn) -> tuple[Costs, Costs, Costs]:
    limits = [draw(st.integers(0, 10**9)) for _ in range(6)]
    one, other = ([draw(st.integers(0, limit)) for limit in limits] for _ in range(2))
    return Costs(*limits), Costs(*one), Costs(*other)


def summed(found: Objective, plan: Costs) -> int:
    return sum(weight * part for weight, part in zip(found.weights, plan, strict=True))


@given(plans_within_limits(), st.sampled_from(Policy))
def test_sums_compare_as_their_parts_do_one_after_another(case: tuple[Costs, Costs, Costs], policy: Policy) -> None:
    limits, one, other = case
    found, order = objective(policy, limits), ORDERS[policy]
    assert (summed(found, one) < summed(found, other)) == (order(one) < order(other))
    assert summed(found, limits) < found.impossible


@pytest.mark.parametrize(("bits", "fits"), [(10, True), (11, False)])
def test_more_than_62_bits_are_left_to_integers_of_any_size(bits: int, fits: bool) -> None:  # noqa: FBT001
    most = (1 << bits) - 1
    assert (objective(Policy.LEAST_WASTE, Costs(*[most] * 6)).impossible <= 1 << INT64_BITS) is fits
