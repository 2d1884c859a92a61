"""M2's rules as a peer: what they place with valid groups, the planner places in no more domains."""

from dataclasses import replace

import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Policy, Request
from hypothesis import given, settings
from support.examples import examples
from support.packing.cases import Case, cases
from support.packing.inventories import RUNS, Run, inventory
from support.packing.m2 import Peer, by_rules, by_text

A, B, C = (Location("r", "c", "b", name) for name in "abc")


def nodes(*free: tuple[Location, int]) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", place, gpus, gpus) for number, (place, gpus) in enumerate(free))


TREE = nodes((A, 8), (B, 8), (B, 4), (C, 4))


def test_the_rules_take_the_largest_domain_and_stay_in_it() -> None:
    assert by_rules(TREE, Request(12, 4, 4)).groups == {B: 3}
    assert by_rules(TREE, Request(16, 4, 4)).groups == {A: 1, B: 3}


def test_the_text_takes_the_domain_where_least_is_left() -> None:
    assert by_text(TREE, Request(12, 4, 4)).groups == {A: 2, C: 1}


def test_the_rules_count_gpus_so_that_groups_may_have_no_whole_pods() -> None:
    tree = nodes((A, 3), (A, 3), (B, 4))
    run = Request(4, 4, 4)
    assert by_rules(tree, run) == Peer({A: 1}, complete=True, invalid=1)
    assert by_rules(tree, run, whole_pods=True) == Peer({B: 1}, complete=True)


def test_a_peer_that_finds_no_domain_is_not_complete() -> None:
    assert not by_rules(TREE, Request(28, 4, 4)).valid
    assert not by_text(TREE, Request(12, 4, 12), whole_pods=True).groups.get(A)


@pytest.mark.heavy
@settings(max_examples=examples(500))
@given(cases())
def test_small_runs_take_no_more_domains_than_by_the_rules(case: Case) -> None:
    tree, run = case
    run = replace(run, spares=0, may_spread=True, malleability=None, policy=Policy.FEWEST_DOMAINS)
    answer = plan(tree, run, "v1")
    for peer in _peers(tree, run):
        if peer.valid:
            assert isinstance(answer, Plan), "the peer placed it"
            assert answer.metrics.domains <= peer.domains


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_runs_on_busy_clusters_take_no_more_domains_than_by_the_rules(run: Run) -> None:
    tree, request = inventory(run.inventory), run.request()
    answer = plan(Inventory.from_nodes(tree), request, "v1")
    assert isinstance(answer, Plan)
    valid = [peer.domains for peer in _peers(tree, request) if peer.valid]
    assert valid
    assert answer.metrics.domains <= min(valid)


def _peers(tree: tuple[Node, ...], run: Request) -> list[Peer]:
    return [peer(tree, run, whole_pods=whole_pods) for peer in (by_rules, by_text) for whole_pods in (False, True)]
