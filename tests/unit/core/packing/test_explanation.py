"""A plan says why it is so in figures that can be checked, and what every other policy would give."""

import re
from dataclasses import replace
from itertools import combinations

import pytest
from gkm.packing import explanation
from gkm.packing import fixes as finders
from gkm.packing.explanation import explain
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import FixKind, Location, Node, Plan, Policy, Refusal, Request, TooLargeError
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.brute import best, fits
from support.packing.cases import Case, cases, scoped_cases

some = settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def domain(name: str, *free: int, block: str = "b1") -> list[Node]:
    place = Location("r", "c", block, name)
    return [Node(f"{block}-{name}-{number}", place, 8, gpus) for number, gpus in enumerate(free)]


TREE = [
    *domain("d1", 8, 8, 8, block="b1"),
    *domain("d2", 8, 8, 8, block="b2"),
    *domain("d3", 8, 8, 7, 7, 7, block="b3"),
    *domain("d4", 8, block="b3"),
    *domain("d5", 8, block="b3"),
    *domain("d6", 8, block="b3"),
    *domain("d7", 8, block="b3"),
]
SIX = Request(48, 8, 8)


def explained(nodes: list[Node], request: Request) -> explanation.Explanation:
    inventory = Inventory.from_nodes(nodes)
    return explain(inventory, plan(inventory, request, "1"), request)


def test_all_policies_are_side_by_side_and_the_one_of_the_run_is_marked() -> None:
    found = explained(TREE, SIX)
    figures = {
        each.policy: (each.metrics.domains, each.metrics.blocks, each.metrics.stranded_gpus)
        for each in found.alternatives
        if each.metrics
    }
    assert figures[Policy.FEWEST_DOMAINS] == (2, 2, 0)
    assert figures[Policy.FEWEST_BLOCKS] == (5, 1, 21)
    assert [each.policy for each in found.alternatives if each.chosen] == [Policy.FEWEST_DOMAINS]


def test_why_no_fewer_domains_and_what_fewer_blocks_would_cost() -> None:
    assert explained(TREE, SIX).reasons == (
        "2 domains hold the 6 groups; one alone cannot: the largest holds 3 at most",
        "of the plans in 2 domains, this leaves the least over: 0 GPUs stay free in the domains that it uses",
        "of those, it has the fewest blocks, 2",
        (
            "fewest-blocks would take 5 domains in 1 block and leave 21 GPUs over; "
            "this takes 2 domains in 2 blocks and leaves 0"
        ),
    )


def test_why_no_fewer_blocks() -> None:
    reasons = explained(TREE, Request(72, 8, 8, policy=Policy.FEWEST_BLOCKS)).reasons
    assert reasons[0] == "2 blocks hold the 9 groups; one alone cannot: the largest holds 6 at most"


def test_spares_that_must_leave_are_said_first() -> None:
    found = explained([*domain("d1", 8, 8), *domain("d2", 8)], Request(16, 8, 16, spares=1))
    assert found.reasons[0].endswith("1 group has some elsewhere, and it cannot be fewer")


def test_a_run_that_may_not_spread_shows_how_many_domains_can_hold_it() -> None:
    nodes = [*domain("d1", 8, 8, 8), *domain("d2", 8, 8), *domain("d3", 8)]
    found = explained(nodes, Request(16, 8, 8, may_spread=False))
    assert found.reasons[0] == (
        "the run may not spread: 2 domains can hold all of it; of those, this has the least left over, 0 GPUs"
    )


def test_a_policy_that_is_too_large_to_plan_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def hard(nodes: Inventory, request: Request, version: str) -> Plan | Refusal:
        if request.policy is Policy.LEAST_WASTE:
            raise TooLargeError("too much to try")
        return plan(nodes, request, version)

    monkeypatch.setattr(explanation, "plan", hard)
    found = explained(TREE, SIX)
    assert [(each.metrics is None, each.problem) for each in found.alternatives] == [
        (False, ""),
        (False, ""),
        (True, "too much to try"),
    ]


def test_of_a_refusal_the_fixes_are_told() -> None:
    inventory = Inventory.from_nodes(domain("d1", 8, 0))
    request = Request(16, 8, 8)
    answer = plan(inventory, request, "1")
    assert isinstance(answer, Refusal)
    found = explain(inventory, answer, request)
    assert [fix.kind for fix in found.fixes] == [FixKind.FREE_NODES, FixKind.SMALLER]
    assert all(each.metrics is None and each.problem for each in found.alternatives)


@pytest.mark.heavy
@some
@given(st.one_of(cases(), scoped_cases()))
def test_alternatives_are_the_best_of_their_policies(case: Case) -> None:
    nodes, request = case
    inventory = Inventory.from_nodes(nodes)
    answer = plan(inventory, request, "1")
    assume(isinstance(answer, Plan))
    assert isinstance(answer, Plan)
    found = explain(inventory, answer, request)
    for each in found.alternatives:
        expected = best(nodes, replace(request, policy=each.policy))
        assert expected is not None
        assert each.metrics is not None
        assert (each.metrics.domains, each.metrics.blocks) == (expected.cost.domains, expected.cost.blocks)


@pytest.mark.heavy
@settings(some, max_examples=examples(60))  # each tries every choice of fewer domains
@given(cases())
def test_what_fewer_domains_or_blocks_hold_at_most_is_so(case: Case) -> None:
    nodes = case[0]
    request = replace(case[1], spares=0, malleability=None, may_spread=True)
    inventory = Inventory.from_nodes(nodes)
    answer = plan(inventory, request, "1")
    assume(isinstance(answer, Plan))
    said = [found for line in explain(inventory, answer, request).reasons if (found := COUNTED.match(line))]
    assume(said)
    width = 3 if said[0]["name"] == "block" else 4
    parts = sorted({node.place[:width] for node in nodes})
    fewer = int(said[0]["fewer"] or 1)
    held = 0
    for chosen in combinations(parts, min(fewer, len(parts))):
        here = [node for node in nodes if node.place[:width] in chosen]
        sizes = [request.gpus - less * request.group_gpus for less in range(request.groups)]
        held = max(
            [held, *(-(-gpus // request.group_gpus) for gpus in sizes if fits(here, replace(request, gpus=gpus)))]
        )
    assert held < request.groups
    assert int(said[0]["most"]) == held


@pytest.mark.heavy
@some
@given(st.one_of(cases(), scoped_cases()))
def test_a_figure_that_does_not_prove_anything_is_not_told_as_a_proof(case: Case) -> None:
    nodes, request = case
    inventory = Inventory.from_nodes(nodes)
    answer = plan(inventory, replace(request, may_spread=True), "1")
    assume(isinstance(answer, Plan))
    assert isinstance(answer, Plan)
    for said in filter(None, map(COUNTED.match, explain(inventory, answer, answer.request).reasons)):
        assert int(said["most"]) < len(answer.groups)


def test_one_is_told_as_one() -> None:
    told = explained(domain("d1", 8, 1), Request(8, 8, 8)).reasons
    assert told[1].endswith("1 GPU stays free in the domains that it uses")
    alone = explained([*domain("d1", 8, 1), *domain("d2", 4)], Request(8, 8, 8, may_spread=False)).reasons
    assert alone[0] == "the run may not spread: 1 domain can hold all of it, and 1 GPU over"


def test_of_a_refusal_it_is_told_which_changes_were_too_large_to_be_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finders, "MAX_WORK", 0)
    inventory = Inventory.from_nodes(domain("d1", 8, 0))
    request = Request(16, 8, 8)
    answer = plan(inventory, request, "1")
    found = explain(inventory, answer, request)
    assert isinstance(answer, Refusal)
    assert found.fixes == ()
    assert found.reasons == (
        answer.message,
        (
            "left out: a smaller run, freeing nodes; a change is reported only when it was planned, and that "
            "would take seconds"
        ),
    )


COUNTED = re.compile(
    r"\d+ (?P<name>domain|block)s hold .*; (no (?P<fewer>\d+) can|one alone cannot): .* (?P<most>\d+) at most"
)
