"""What prices rule out is in no plan of that cost: trying every plan of small trees says so too."""

from itertools import product

import numpy as np
from gkm.packing.domains.capacity import capacity
from gkm.packing.domains.narrowing import Worth, worth
from gkm.packing.domains.narrowing_scopes import worth_of_scopes
from gkm.packing.inventory import Inventory
from gkm.packing.values import Ceiling, Location, Node, Policy, Request
from hypothesis import given, settings
from hypothesis import strategies as st

Taken = tuple[int, ...]


def held_against(found: Worth, plans: dict[Taken, int], most: int) -> None:
    """Assert that the bound is true, and that plans of no more than `most` take what is said to be in all of them."""
    if plans:
        assert found.fewest <= min(plans.values())
    narrowed = found.narrowed(most)
    least = dict(zip(narrowed.domains.tolist(), narrowed.least.tolist(), strict=True))
    for taken, cost in plans.items():
        if cost <= most:
            for domain, groups in enumerate(taken):
                assert domain in least or not groups
                assert groups >= least.get(domain, 0)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.integers(1, 8),
    st.integers(0, 4),
    st.booleans(),
)
def test_no_plan_of_that_cost_is_ruled_out(
    domains: list[tuple[int, int, int]],
    cost: list[int],
    groups: int,
    more: int,
    short: bool,  # noqa: FBT001
) -> None:
    held, area, extra = (np.array(column, dtype=np.int64) for column in zip(*domains, strict=True))
    found = worth(held, area, np.array(cost, dtype=np.int64), groups, extra if short else None)
    plans: dict[Taken, int] = {}
    most = [count + (room if short else 0) for count, _, room in domains]
    for taken in product(*(range(count + 1) for count in most)):
        beyond = sum(count > full for count, (full, _, _) in zip(taken, domains, strict=True))
        # The short group is one in all, in a domain of its own choice; only where it is can there be one more.
        if sum(taken) == groups + short and beyond <= 1:
            plans[taken] = sum(cost[number] for number in {domains[at][1] for at, count in enumerate(taken) if count})
    if found is None:
        assert sum(count for count, _, _ in domains) < groups
    else:
        held_against(found, plans, found.fewest + more)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["b1", "b2"]), st.integers(0, 2)), min_size=1, max_size=5),
    st.lists(st.integers(0, 6), min_size=3, max_size=3),
    st.integers(1, 8),
    st.integers(0, 3),
    st.sampled_from(Policy),
)
def test_no_plan_within_the_ceilings_is_ruled_out(
    drawn: list[tuple[int, str, int]], given_gpus: list[int], groups: int, more: int, policy: Policy
) -> None:
    # Domains are in order of their keys, as inventories have them.
    drawn = sorted(drawn, key=lambda domain: domain[1])
    nodes = [
        Node(f"n{number}", Location("r", "c", block, f"d{number}"), gpus, gpus, frozenset({f"s{scope}"}))
        for number, (gpus, block, scope) in enumerate(drawn)
    ]
    ceilings = tuple(Ceiling(f"s{scope}", gpus) for scope, gpus in enumerate(given_gpus))
    request = Request(groups, 1, 1, policy=policy, ceilings=ceilings)
    offer = capacity(Inventory.from_nodes(nodes), request)
    found = worth_of_scopes(offer, request, np.arange(len(nodes)))
    plans: dict[Taken, int] = {}
    for taken in product(*(range(gpus + 1) for gpus, _, _ in drawn)):
        paid = [sum(count for count, (_, _, at) in zip(taken, drawn, strict=True) if at == scope) for scope in range(3)]
        if sum(taken) == groups and all(one <= most for one, most in zip(paid, given_gpus, strict=True)):
            used = [domain for count, domain in zip(taken, drawn, strict=True) if count]
            plans[taken] = {
                Policy.FEWEST_BLOCKS: len({block for _, block, _ in used}),
                Policy.LEAST_WASTE: sum(gpus for gpus, _, _ in used),
            }.get(policy, len(used))
    assert (found is None) == (not plans)
    if found is not None:
        held_against(found, plans, found.fewest + more)
