"""One integer compares as the policy does."""

from collections.abc import Callable

import pytest
from gkm.packing.domains.costs import Costs, Limits, costs
from gkm.packing.values import Policy
from hypothesis import given
from hypothesis import strategies as st

ORDERS: dict[Policy, Callable[[Limits], tuple[int, ...]]] = {
    Policy.FEWEST_DOMAINS: lambda plan: (plan.spares, plan.domains, plan.gpus, plan.blocks),
    Policy.FEWEST_BLOCKS: lambda plan: (plan.spares, plan.blocks, plan.domains, plan.gpus),
    Policy.LEAST_WASTE: lambda plan: (plan.spares, plan.gpus, plan.domains, plan.blocks),
}


@st.composite
def plans_within_limits(draw: st.DrawFn) -> tuple[Limits, Limits, Limits]:
    limits = [draw(st.integers(0, 10**9)) for _ in range(4)]
    one, other = ([draw(st.integers(0, limit)) for limit in limits] for _ in range(2))
    return Limits(*limits), Limits(*one), Limits(*other)


def summed(found: Costs, plan: Limits) -> int:
    parts = plan.spares * found.spare, plan.domains * found.domain, plan.gpus * found.gpu, plan.blocks * found.block
    return sum(parts)


@given(plans_within_limits(), st.sampled_from(Policy))
def test_sums_compare_as_their_parts_do_one_after_another(case: tuple[Limits, Limits, Limits], policy: Policy) -> None:
    limits, one, other = case
    found, order = costs(policy, limits), ORDERS[policy]
    assert (summed(found, one) < summed(found, other)) == (order(one) < order(other))
    assert summed(found, limits) < found.impossible


@pytest.mark.parametrize(("bits", "fits"), [(15, True), (16, False)])
def test_more_than_62_bits_are_left_to_integers_of_any_size(bits: int, fits: bool) -> None:  # noqa: FBT001
    most = (1 << bits) - 1
    assert costs(Policy.LEAST_WASTE, Limits(most, most, most, most)).fits_int64 is fits
