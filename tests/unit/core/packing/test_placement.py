"""Regions and clusters, one area for a run, equal shares, and several scopes: small cases worked out by hand."""

from collections import Counter

import pytest
from gkm.packing.hashing import document
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Location, Node, Plan, Policy, Refusal, Request, Within
from support.packing.checker import problems


def node(name: str, place: str, free: int, *scopes: str) -> Node:
    region, cluster, block, domain = place.split("/")
    return Node(name, Location(region, cluster, block, domain), free, free, frozenset(scopes))


def planned(nodes: list[Node], request: Request) -> Plan:
    answer = plan(nodes, request, "v1")
    assert isinstance(answer, Plan), answer
    assert problems(nodes, request, answer) == []
    return answer


def shares(answer: Plan) -> list[int]:
    return sorted(Counter(group.place for group in answer.groups).values())


@pytest.mark.parametrize("policy", [Policy.FEWEST_DOMAINS, Policy.FEWEST_BLOCKS])
def test_one_region_comes_before_a_stranded_gpu(policy: Policy) -> None:
    nodes = [node("n1", "eu/a/x/1", 8), node("n2", "eu/a/y/2", 9), node("n3", "us/a/z/3", 8)]
    answer = planned(nodes, Request(16, 8, 8, policy=policy))
    assert {group.place.region for group in answer.groups} == {"eu"}


def test_one_cluster_comes_before_a_stranded_gpu() -> None:
    nodes = [node("n1", "eu/a/x/1", 8), node("n2", "eu/a/y/2", 9), node("n3", "eu/b/z/3", 8)]
    answer = planned(nodes, Request(16, 8, 8))
    assert {group.place.cluster for group in answer.groups} == {"a"}


def test_ceilings_hold_where_nodes_are_in_several_scopes() -> None:
    nodes = [node(f"a{number}", "r/c/b/d0", 8, "s1") for number in range(4)]
    nodes += [node(f"b{number}", "r/c/b/d1", 8, "s0", "s1") for number in range(3)]
    answer = planned(nodes, Request(40, 8, 16, ceilings=(Ceiling("s0", 16), Ceiling("s1", 40))))
    assert sum(group.gpus for group in answer.groups) == 40
    assert answer.metrics.gap == 0


def test_the_short_group_alone_in_a_domain_of_two_scopes() -> None:
    nodes = [node("n00", "r/c/b/d0", 4, "s1"), node("n10", "r/c/b/d1", 3, "s0", "s1")]
    answer = planned(nodes, Request(5, 1, 2, ceilings=(Ceiling("s0", 2), Ceiling("s1", 3))))
    assert sum(group.gpus for group in answer.groups) == 5


@pytest.mark.parametrize("within", list(Within))
def test_a_run_within_an_area_stays_there_with_its_spares(within: Within) -> None:
    depth = {Within.REGION: 1, Within.CLUSTER: 2, Within.BLOCK: 3}[within]
    nodes = [node("large", "eu/a/x/1", 3)]
    nodes += [node(f"n{number}", f"us/a/{number // 2}/{number}", 2) for number in range(4)]
    answer = planned(nodes, Request(2, 1, 1, spares=1, within=within))
    places = [
        *(group.place for group in answer.groups),
        *(spare.place for group in answer.groups for spare in group.spares),
    ]
    assert len({place[:depth] for place in places}) == 1


def test_a_run_that_no_block_holds_is_refused_within_one() -> None:
    nodes = [node(f"n{number}", f"r/c/{number}/{number}", 2) for number in range(3)]
    assert isinstance(plan(nodes, Request(6, 2, 2), "v1"), Plan)
    refused = plan(nodes, Request(6, 2, 2, within=Within.BLOCK), "v1")
    assert isinstance(refused, Refusal)
    assert refused.largest_groups == 1


def test_equal_shares_where_fewest_domains_would_leave_a_rest() -> None:
    nodes = [node(f"n{number:02}", f"r/c/b{number // 4}/{number:02}", 18) for number in range(9)]
    assert shares(planned(nodes, Request(128, 1, 1))) == [2, *[18] * 7]
    assert shares(planned(nodes, Request(128, 1, 1, balanced=True))) == [16] * 8


def test_equal_shares_with_a_short_group_and_spares_elsewhere() -> None:
    nodes = [node(f"n{number}", f"r/c/b/{number}", 5) for number in range(2)] + [node("rest", "r/c/b/z", 1)]
    answer = planned(nodes, Request(7, 1, 2, spares=1, balanced=True))
    assert shares(answer) == [2, 2]


def test_equal_shares_in_overlapping_scopes() -> None:
    nodes = [node(f"n{number}", f"r/c/b/{number}", 3, "s0", "s1") for number in range(4)]
    ceilings = Ceiling("s0", 4), Ceiling("s1", 4)
    assert shares(planned(nodes, Request(8, 1, 1, ceilings=ceilings))) == [2, 3, 3]
    assert shares(planned(nodes, Request(8, 1, 1, ceilings=ceilings, balanced=True))) == [2] * 4


def test_requests_without_the_new_fields_are_hashed_as_before() -> None:
    asked = document(Request(8, 8, 8), (), "v1")["request"]
    assert isinstance(asked, dict)
    assert {"within", "balanced"}.isdisjoint(asked)
