"""The bound that a plan shows is true, and tight on inventories as clusters have them."""

from dataclasses import replace

import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Location, Node, Plan, Policy, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.packing.brute import best
from support.packing.cases import Case, cases, scoped_cases
from support.packing.inventories import RUNS, Run, inventory

SMALL = {name: Inventory.from_nodes(inventory(name)) for name in ("h100_10k", "nvl72_10k")}


@settings(max_examples=200, deadline=None)
@given(st.one_of(cases(), scoped_cases()))
def test_no_plan_is_better_than_the_bound(case: Case) -> None:
    nodes, request = case
    answer, expected = plan(nodes, request, "v1"), best(nodes, request)
    if isinstance(answer, Plan) and expected is not None:
        least = {Policy.FEWEST_DOMAINS: expected.cost.domains, Policy.FEWEST_BLOCKS: expected.cost.blocks}
        # What is free in used domains, less what this plan takes there, is what a best plan strands.
        stranded = answer.metrics.stranded_gpus
        assert answer.metrics.lower_bound <= least.get(request.policy, stranded)


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("spares", [0, 1, 2])
@pytest.mark.parametrize("run", [run for run in RUNS if run.inventory in SMALL], ids=str)
def test_the_bound_is_reached_also_where_spares_must_leave(run: Run, spares: int, policy: Policy) -> None:
    answer = plan(SMALL[run.inventory], run.request(policy, spares=spares), "v1")
    if isinstance(answer, Plan):
        assert answer.metrics.gap == 0


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("run", [run for run in RUNS if run.inventory in SMALL], ids=str)
def test_the_bound_is_reached_also_where_the_last_group_is_short_and_spares_leave(run: Run, policy: Policy) -> None:
    answer = plan(SMALL[run.inventory], run.request(policy, spares=2, short_by=1), "v1")
    if isinstance(answer, Plan):
        assert answer.metrics.gap == 0


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("scopes", [2, 3])
def test_the_bound_is_reached_also_where_ceilings_bind(scopes: int, policy: Policy) -> None:
    nodes = SMALL["h100_10k"].nodes
    places = SMALL["h100_10k"].places
    names = {place: f"s{number * scopes // len(places)}" for number, place in enumerate(places)}
    scoped = [replace(node, scopes=frozenset({names[node.place]})) for node in nodes]
    ceilings = tuple(Ceiling(f"s{number}", 64 * (8 // scopes + 1)) for number in range(scopes))
    answer = plan(scoped, Request(8 * 64, 8, 64, policy=policy, ceilings=ceilings), "v1")
    assert isinstance(answer, Plan)
    assert answer.metrics.gap == 0


def test_a_block_that_is_in_two_scopes_serves_both() -> None:
    places = Location("r", "c", "b1", "d1"), Location("r", "c", "b1", "d2"), Location("r", "c", "b2", "d3")
    free = (("s1", 2), ("s2", 2), ("s1", 4))
    nodes = [
        Node(f"n{number}", place, gpus, gpus, frozenset({scope}))
        for number, (place, (scope, gpus)) in enumerate(zip(places, free, strict=True))
    ]
    ceilings = (Ceiling("s1", 2), Ceiling("s2", 2))
    answer = plan(nodes, Request(4, 1, 1, policy=Policy.FEWEST_BLOCKS, ceilings=ceilings), "v1")
    assert isinstance(answer, Plan)
    # Neither scope gives four GPUs: both do together, in the block that is in both.
    assert (answer.metrics.blocks, answer.metrics.lower_bound) == (1, 1)


def test_some_of_these_runs_have_spares_that_must_leave() -> None:
    run = next(run for run in RUNS if str(run) == "nvl72_10k 64x32")
    answer = plan(SMALL["nvl72_10k"], replace(run.request(), spares=2), "v1")
    assert isinstance(answer, Plan)
    assert answer.metrics.spares_elsewhere > 0
