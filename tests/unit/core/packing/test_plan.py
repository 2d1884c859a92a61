"""One run is planned, or refused with what binds."""

import pytest
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import (
    Ceiling,
    Distance,
    Level,
    Location,
    Malleability,
    Node,
    Plan,
    Policy,
    Refusal,
    Request,
    Within,
)


def domain(name: str, *free: int, block: str = "b1", scopes: frozenset[str] = frozenset()) -> list[Node]:
    place = Location("r", "c", block, name)
    return [Node(f"{block}-{name}-{number}", place, 8, gpus, scopes) for number, gpus in enumerate(free)]


def planned(nodes: list[Node], request: Request) -> Plan:
    found = plan(nodes, request, "1")
    assert isinstance(found, Plan), found
    return found


def refused(nodes: list[Node], request: Request) -> Refusal:
    found = plan(nodes, request, "1")
    assert isinstance(found, Refusal), found
    return found


def domains(found: Plan) -> list[str]:
    return [f"{group.place.block}/{group.place.domain}" for group in found.groups]


SPLIT = [
    *domain("d1", 8, 8, block="b1"),
    *domain("d2", 8, block="b2"),
    *domain("d3", 8, block="b2"),
    *domain("d4", 4, 4, 4, 4, 4, block="b3"),
]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # Four groups of a whole 4-GPU pod: all of d1, or part of d4, or both domains of the second block.
        (Policy.FEWEST_DOMAINS, ["b1/d1"] * 4),
        (Policy.FEWEST_BLOCKS, ["b1/d1"] * 4),
        (Policy.LEAST_WASTE, ["b1/d1"] * 4),
    ],
)
def test_a_run_that_fills_one_domain_gets_it_under_every_policy(policy: Policy, expected: list[str]) -> None:
    found = planned(SPLIT, Request(gpus=16, pod_gpus=4, group_gpus=4, policy=policy))
    assert domains(found) == expected
    assert found.metrics.stranded_gpus == 0
    assert found.metrics.gap == 0


def test_policies_differ_where_one_thing_is_had_at_the_cost_of_another() -> None:
    nodes = [
        *domain("d1", 8, 8, 8, block="b1"),
        *domain("d2", 8, 8, 8, block="b2"),
        *domain("d3", 8, 8, 7, 7, 7, block="b3"),
        *domain("d4", 8, block="b3"),
        *domain("d5", 8, block="b3"),
        *domain("d6", 8, block="b3"),
        *domain("d7", 8, block="b3"),
    ]
    # Six groups of 8: two domains in two blocks, or five domains in one block with 21 GPUs stranded.
    by = {policy: planned(nodes, Request(48, 8, 8, policy=policy)).metrics for policy in Policy}
    assert (by[Policy.FEWEST_DOMAINS].domains, by[Policy.FEWEST_DOMAINS].blocks) == (2, 2)
    assert (by[Policy.FEWEST_BLOCKS].domains, by[Policy.FEWEST_BLOCKS].blocks) == (5, 1)
    assert by[Policy.LEAST_WASTE].stranded_gpus == 0


def test_the_smallest_keys_win_between_equals() -> None:
    nodes = [*domain("d3", 8), *domain("d1", 8), *domain("d2", 8)]
    assert domains(planned(nodes, Request(16, 8, 8))) == ["b1/d1", "b1/d2"]


def test_a_short_last_group_goes_where_no_whole_one_fits() -> None:
    found = planned([*domain("d1", 2), *domain("d2", 8)], Request(gpus=10, pod_gpus=2, group_gpus=8))
    assert [(group.index, group.gpus, group.place.domain) for group in found.groups] == [(0, 8, "d2"), (1, 2, "d1")]


def test_a_run_that_may_not_spread_gets_the_tightest_domain_that_holds_it_with_its_spares() -> None:
    nodes = [*domain("d1", 8, 8, 8, 8), *domain("d2", 8, 8, 8), *domain("d3", 8, 8)]
    request = Request(gpus=16, pod_gpus=8, group_gpus=16, spares=1, may_spread=False)
    found = planned(nodes, request)
    assert {group.place.domain for group in found.groups} == {"d2"}
    assert all(spare.distance is Distance.DOMAIN for group in found.groups for spare in group.spares)
    assert refused(nodes[4:][:2], request).level is Level.DOMAIN


def test_spares_leave_only_where_the_run_does_not_fit_otherwise() -> None:
    nodes = [*domain("d1", 8, 8), *domain("d2", 8)]
    found = planned(nodes, Request(gpus=16, pod_gpus=8, group_gpus=16, spares=1))
    assert found.metrics.spares_elsewhere == 1
    assert [(spare.node, spare.distance) for spare in found.groups[0].spares] == [("b1-d2-0", Distance.BLOCK)]
    roomier = [*nodes, *domain("d3", 8, 8, 8)]
    assert planned(roomier, Request(gpus=16, pod_gpus=8, group_gpus=16, spares=1)).metrics.spares_elsewhere == 0


def test_a_malleable_run_gets_its_largest_size_that_fits() -> None:
    request = Request(gpus=40, pod_gpus=8, group_gpus=8, malleability=Malleability(step_gpus=12, min_gpus=8))
    # Sizes are 40 and, because 28 does not divide into pods, 16.
    assert planned(domain("d1", 8, 8, 8, 8), request).gpus == 16
    assert isinstance(plan(domain("d1", 8), request, "1"), Refusal)


def test_no_scope_gives_more_than_its_ceiling_spares_included() -> None:
    nodes = [*domain("d1", 8, 8, 8, scopes=frozenset({"a"})), *domain("d2", 8, 8, 8, scopes=frozenset({"b"}))]
    ceilings = (Ceiling("a", 8), Ceiling("b", 16))
    found = planned(nodes, Request(24, 8, 8, ceilings=ceilings))
    assert sorted(group.scope for group in found.groups) == ["a", "b", "b"]
    answer = refused(nodes, Request(24, 8, 8, spares=1, ceilings=ceilings))
    assert (answer.level, answer.largest_groups) == (Level.SCOPE, 1)


def test_a_group_lies_in_one_scope_even_where_its_domain_has_nodes_of_several() -> None:
    nodes = [*domain("d1", 8, scopes=frozenset({"a"})), *domain("d1", 0, 8, scopes=frozenset({"b"}))[1:]]
    request = Request(16, 8, 16, ceilings=(Ceiling("a", 99), Ceiling("b", 99)))
    assert refused(nodes, request).level is Level.SCOPE
    both = [Node("x", nodes[0].place, 8, 8, frozenset({"a", "b"})), nodes[1]]
    assert planned(both, request).groups[0].scope == "b"


TWO_BLOCKS = [
    Node(f"{block}-{at}", Location("r", "c", block, f"d-{block}"), 8, 8)
    for block, count in (("b1", 3), ("b2", 2))
    for at in range(count)
]
TWO_CLUSTERS = [Node(f"c{at}", Location(f"r{at}", f"c{at}", "b", "d"), 8, 8) for at in range(2)]


@pytest.mark.parametrize(
    ("nodes", "request_", "level", "largest"),
    [
        ([], Request(8, 8, 8), Level.FLAVOR, 0),
        (domain("d1", 4, 4), Request(8, 8, 8), Level.NODE, 0),
        ([*domain("d1", 8), *domain("d2", 8)], Request(16, 8, 16), Level.DOMAIN, 0),
        (domain("d1", 8, 8), Request(24, 8, 8), Level.CAPACITY, 2),
        (domain("d1", 8, 8), Request(8, 8, 8, spares=2), Level.CAPACITY, 0),
        (domain("d1", 8, 8, 8), Request(24, 8, 8, may_spread=False, spares=1), Level.DOMAIN, 1),
        (domain("d1", 8), Request(10**9, 1, 1), Level.CAPACITY, 8),
        (TWO_BLOCKS, Request(32, 8, 8, within=Within.BLOCK), Level.BLOCK, 3),
        (TWO_BLOCKS, Request(48, 8, 8, within=Within.BLOCK), Level.CAPACITY, 3),
        (TWO_BLOCKS, Request(32, 8, 32, within=Within.BLOCK), Level.DOMAIN, 0),
        (TWO_BLOCKS, Request(40, 8, 8, within=Within.CLUSTER, balanced=True), Level.BALANCE, 4),
        (TWO_BLOCKS, Request(40, 8, 8, within=Within.BLOCK, balanced=True), Level.BLOCK, 3),
        (TWO_CLUSTERS, Request(16, 8, 8, within=Within.CLUSTER), Level.CLUSTER, 1),
        (TWO_CLUSTERS, Request(16, 8, 8, within=Within.REGION), Level.REGION, 1),
        (
            TWO_BLOCKS,
            Request(40, 8, 8, within=Within.BLOCK, malleability=Malleability(step_gpus=8, min_gpus=32)),
            Level.BLOCK,
            3,
        ),
    ],
)
def test_a_refusal_names_the_level_that_binds_and_the_most_groups_that_fit(
    nodes: list[Node], request_: Request, level: Level, largest: int
) -> None:
    answer = refused(nodes, request_)
    assert (answer.level, answer.largest_groups) == (level, largest)


def test_an_inventory_is_made_once_and_planned_with_many_times() -> None:
    inventory = Inventory.from_nodes(SPLIT)
    for policy in Policy:
        request = Request(gpus=16, pod_gpus=4, group_gpus=4, policy=policy)
        assert plan(inventory, request, "1") == plan(reversed(SPLIT), request, "1")
