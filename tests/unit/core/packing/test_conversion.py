"""A plan is the same when it has been written into a PlacementPlan and read again."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import msgspec
import pytest
from gkm.api.plans import PlanSpec, SpareShare
from gkm.api.runs import RunAreaRule, RunSpec
from gkm.packing.conversion import PlanUnreadable, gpus_by_node, groups_of, plan_spec, request
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import AreaRule, Group, Level, Location, Node, Plan, Request
from hypothesis import given
from hypothesis import strategies as st
from support.packing.cases import Case, cases, scoped_cases

VERSION = "0" * 64
BLOCKS = [Node("", Location("r", "c", f"b{at // 2}", f"d{at}"), 8, 8) for at in range(4)]
DOMAIN = Location("region-1", "cluster-1", "block-1", "domain-1")


def named(nodes: tuple[Node, ...]) -> list[Node]:
    """Nodes with names that differ in their numbers, or in nothing that is one."""
    return [Node(f"{'gpu' if index % 3 else 'x'}-{index:02}.rack", *_rest(node)) for index, node in enumerate(nodes)]


def _rest(node: Node) -> tuple[Location, int, int, frozenset[str]]:
    return node.place, node.total, node.free, node.scopes


def sent(spec: PlanSpec) -> PlanSpec:
    """What the API server gives back."""
    return msgspec.json.decode(msgspec.json.encode(spec), type=PlanSpec)


def test_rules_for_areas_come_out_as_they_went_in_and_groups_apart_are_one() -> None:
    rules = [RunAreaRule("block", groups_together=2), RunAreaRule("rack", max_nodes=16)]
    found = request(RunSpec("h100", 32, per_area=rules, apart="rack"), "fewest-domains")
    assert found.per_area == (AreaRule(Level.RACK, 1, 16), AreaRule(Level.BLOCK, multiple=2))
    nodes = [replace(node, rack=f"k{at}") for at, node in enumerate(named(tuple(BLOCKS)))]
    answer = plan(nodes, found, VERSION)
    assert isinstance(answer, Plan)
    spec = sent(plan_spec(answer, "h100"))
    assert request(spec.request, spec.policy) == found


def test_a_rule_for_areas_without_a_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="the rule for each rack has none of maxGroups, maxNodes and groupsTogether"):
        request(RunSpec("h100", 32, per_area=[RunAreaRule("rack")]), "fewest-domains")


@given(st.one_of(cases(), scoped_cases()))
def test_groups_and_request_come_out_as_they_went_in(case: Case) -> None:
    nodes, asked = case
    answer = plan(named(nodes), asked, VERSION)
    if not isinstance(answer, Plan):
        return
    spec = sent(plan_spec(answer, "h100"))
    assert request(spec.request, spec.policy) == asked
    read = groups_of(spec)
    assert [_plain(group) for group in read] == [_plain(group) for group in answer.groups]
    taken = Counter[str]()
    for group in answer.groups:
        taken.update({share.node: share.gpus for share in group.nodes})
        for spare in group.spares:
            taken[spare.node] += spare.gpus
    assert gpus_by_node(spec) == taken
    assert plan_hash(asked, read, spec.inventory_version) == spec.hash


def _plain(group: Group) -> Group:
    """A group with its spares in one order: a plan writes them by node."""
    return replace(group, spares=tuple(sorted(group.spares, key=repr)))


@pytest.mark.parametrize("group_gpus", [1, 8, 16, 128])
@pytest.mark.parametrize(
    "name", ["gpu-{:05}", "ip-10-0-{}.region-1.compute.internal", "pool-{:04x}-{:04x}"], ids=["numbered", "long", "odd"]
)
def test_a_plan_of_ten_thousand_nodes_is_below_500_kilobytes(name: str, group_gpus: int) -> None:
    pod = min(8, group_gpus)
    request = Request(gpus=80_000 // group_gpus * group_gpus, pod_gpus=pod, group_gpus=group_gpus)
    answer = plan(_ten_thousand(name), request, VERSION)
    assert isinstance(answer, Plan)
    spec = plan_spec(answer, "nvidia-h100-80gb-hbm3")
    assert len(msgspec.json.encode(spec)) < 500_000
    assert groups_of(spec) == answer.groups


@cache
def _ten_thousand(name: str) -> Inventory:
    chance = Random(1)
    return Inventory.from_nodes(
        Node(name.format(*_numbers(index, chance)), _domain(index), 8, 8) for index in range(10_080)
    )


def _numbers(index: int, chance: Random) -> tuple[int, int]:
    return index, chance.getrandbits(16)


def _domain(index: int) -> Location:
    number = index // 16
    return Location(
        "region-1", "cluster-1", f"block-{number // 8:03}", f"8a1b2c3d-1111-4222-8333-{number:012}.{number}"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "gpu-[2-1]"}, "range 2-1"),
        ({"name": "gpu-[0-9999999]"}, "names"),
        ({"name": "A"}, "no names of nodes"),
        ({"gpus": 16}, "the nodes of this group have more GPUs than its 8 GPUs"),
        ({"gpus": 4}, "its nodes give 4 GPUs, and it has 8"),
        ({"name": "gpu-[1-3]"}, "the range 1-3 has 3 names"),
        ({"name": "gpu-1*3"}, "more than 1 names"),
    ],
)
def test_what_no_plan_of_ours_says_is_refused_with_its_group(change: dict[str, object], said: str) -> None:
    answer = plan([Node("gpu-1", DOMAIN, 8, 8)], Request(gpus=8, pod_gpus=8, group_gpus=8), VERSION)
    assert isinstance(answer, Plan)
    document = msgspec.to_builtins(plan_spec(answer, "h100"))
    document["groups"][0]["nodes"][0].update(change)
    with pytest.raises(PlanUnreadable, match=f"group 0: .*{said}"):
        groups_of(msgspec.convert(document, PlanSpec))


def _swollen(**change: object) -> PlanSpec:
    """A plan of one pod and a spare on two nodes, with its group changed."""
    nodes = [Node(f"gpu-{number}", DOMAIN, 8, 8) for number in (1, 2)]
    answer = plan(nodes, Request(gpus=8, pod_gpus=8, group_gpus=8, spares=1), VERSION)
    assert isinstance(answer, Plan)
    document = msgspec.to_builtins(plan_spec(answer, "h100"))
    document["groups"][0] |= change
    return msgspec.convert(document, PlanSpec)


MANY = "n*1000000"
SPARES = {"node": MANY, "gpus": 8, "domain": "/".join(DOMAIN), "distance": "domain"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": 2}, "its groups have more than the 8 GPUs of the plan"),
        ({"gpus": 1_000_000, "nodes": [{"name": MANY, "gpus": 1}]}, "its groups have more than the 8 GPUs of the plan"),
        ({"nodes": [{"name": MANY, "gpus": 1}]}, "more than 8 names"),
        ({"nodes": [{"name": "n", "gpus": 8}] * 10_000}, "the nodes of this group have more GPUs than its 8 GPUs"),
        ({"spares": [SPARES]}, "more than 1 names"),
        ({"spares": [SPARES | {"node": "n"}] * 10_000}, "it has more than 1 spares of 8 GPUs"),
    ],
)
def test_what_a_few_bytes_say_a_million_times_is_refused_before_it_is_written_out(
    change: dict[str, object], said: str
) -> None:
    spec = _swollen(**change)
    tracemalloc.start()
    try:
        with pytest.raises(PlanUnreadable, match=said):
            groups_of(spec)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_spares_of_all_groups_together_are_no_more_than_a_run_may_have() -> None:
    spec = _swollen()
    request = msgspec.structs.replace(spec.request, spares=2_000_000)
    group = msgspec.structs.replace(spec.groups[0], spares=[SpareShare(MANY, 8, "/".join(DOMAIN), "domain")])
    with pytest.raises(PlanUnreadable, match="more than 125000 names"):
        groups_of(msgspec.structs.replace(spec, request=request, groups=[group]))
