"""A run that has a plan is planned again after a loss: nobody moves who can stay."""

import pytest
from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.values import (
    Ceiling,
    Distance,
    FormerPlan,
    Group,
    Location,
    Malleability,
    Node,
    Plan,
    Refusal,
    Repair,
    Replanned,
    Request,
    Share,
    Spare,
)


def place(name: str) -> Location:
    return Location("r", "c", name[0], name[1:])


def domain(name: str, *free: int, scopes: frozenset[str] = frozenset()) -> list[Node]:
    """Return nodes of a domain, "1a": domain a of block 1. Their names are 1a-0, 1a-1 and so on."""
    return [Node(f"{name}-{number}", place(name), 8, gpus, scopes) for number, gpus in enumerate(free)]


def without(nodes: list[Node], *names: str) -> list[Node]:
    return [node for node in nodes if node.name not in names]


def group(index: int, name: str, *nodes: str, spares: tuple[str, ...] = (), scope: str = "") -> Group:
    """Return a group of 8 GPUs on each of its nodes, with a spare on each of some others of its domain."""
    ready = tuple(Spare(node, 8, place(name), Distance.DOMAIN) for node in spares)
    return Group(index, 8 * len(nodes), place(name), scope, tuple(Share(node, 8) for node in nodes), ready)


def again(nodes: list[Node], former: tuple[Group, ...], request: Request) -> Replanned:
    found = replan(nodes, FormerPlan(former), request, "v2")
    assert isinstance(found, Replanned), found
    return found


def on(found: Replanned, index: int) -> list[str]:
    return [name for group in found.plan.groups if group.index == index for name, _ in group.nodes]


def ready(found: Replanned, index: int) -> list[tuple[str, Distance]]:
    return [
        (spare.node, spare.distance) for group in found.plan.groups if group.index == index for spare in group.spares
    ]


TWO_OF_TWO = Request(gpus=32, pod_gpus=8, group_gpus=16)


def test_a_repair_names_the_domain_with_its_cluster_since_clusters_may_share_names() -> None:
    nodes = domain("1a", 8, 8, 8)
    found = again(
        without(nodes, "1a-1"), (group(0, "1a", "1a-0", "1a-1"),), Request(gpus=16, pod_gpus=8, group_gpus=16)
    )
    assert "group 0 stays in domain r/c/1/a: it gives up 8 GPUs of 1a-1 and takes 8 GPUs of 1a-2" in found.reasons


def test_nothing_lost_nothing_changed() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("1b", 8, 8)]
    made = plan(nodes, TWO_OF_TWO, "v1")
    assert isinstance(made, Plan)
    found = again(nodes, made.groups, TWO_OF_TWO)
    assert found.plan.groups == made.groups
    assert (found.kept, found.repaired, found.moved, found.spares_used) == ((0, 1), (), (), 0)


def test_a_pod_goes_to_the_spare_of_its_group_before_a_free_slot_and_the_spare_is_made_again() -> None:
    nodes = domain("1a", 8, 8, 8, 8)
    former = (group(0, "1a", "1a-0", "1a-1", spares=("1a-3",)),)
    found = again(without(nodes, "1a-0"), former, Request(16, 8, 16, spares=1))
    assert on(found, 0) == ["1a-1", "1a-3"]
    assert found.repaired == (Repair(0, (Share("1a-0", 8),), (Share("1a-3", 8),), spares=1),)
    assert (found.kept, found.moved, found.spares_used) == ((), (), 1)
    assert ready(found, 0) == [("1a-2", Distance.DOMAIN)]


def test_a_spare_that_was_used_is_made_again_in_the_block_where_its_domain_is_full() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("1b", 8), *domain("2a", 8)]
    former = (group(0, "1a", "1a-0", "1a-1", spares=("1a-2",)),)
    found = again(without(nodes, "1a-1"), former, Request(16, 8, 16, spares=1))
    assert on(found, 0) == ["1a-0", "1a-2"]
    assert ready(found, 0) == [("1b-0", Distance.BLOCK)]


def test_without_a_spare_a_free_slot_of_the_domain_repairs_a_group() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("1b", 8, 8)]
    former = (group(0, "1a", "1a-0", "1a-1"), group(1, "1b", "1b-0", "1b-1"))
    found = again(without(nodes, "1a-1"), former, TWO_OF_TWO)
    assert found.repaired == (Repair(0, (Share("1a-1", 8),), (Share("1a-2", 8),), spares=0),)
    assert (found.kept, found.moved) == ((1,), ())


def test_the_spare_of_a_neighbour_is_used_before_a_group_moves() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("2a", 8, 8, 8)]
    former = (group(0, "1a", "1a-0", spares=("1a-2",)), group(1, "1a", "1a-1"))
    request = Request(16, 8, 8, spares=1)
    found = again(without(nodes, "1a-1"), former, request)
    assert on(found, 0) == ["1a-0"]
    assert on(found, 1) == ["1a-2"]
    assert (found.kept, found.moved, found.spares_used) == ((0,), (), 1)
    assert {distance for index in (0, 1) for _, distance in ready(found, index)} == {Distance.CLUSTER}


def test_a_group_that_its_domain_cannot_repair_moves_as_a_whole_and_no_other_does() -> None:
    nodes = [*domain("1a", 8, 8), *domain("1b", 8, 8), *domain("1c", 8, 8, 8)]
    former = (group(0, "1a", "1a-0", "1a-1"), group(1, "1b", "1b-0", "1b-1"))
    found = again(without(nodes, "1a-1"), former, TWO_OF_TWO)
    assert on(found, 0) == ["1c-0", "1c-1"]
    assert (found.kept, found.moved) == ((1,), (0,))
    assert any("group 0 moves from r/c/1/a to r/c/1/c" in reason for reason in found.reasons)


def test_of_two_broken_groups_the_one_that_keeps_more_pods_stays() -> None:
    nodes = [*domain("1a", 8, 8, 8, 8, 8, 8), *domain("2a", 8, 8, 8)]
    former = (group(0, "1a", "1a-0", "1a-1", "1a-2"), group(1, "1a", "1a-3", "1a-4", "1a-5"))
    found = again(without(nodes, "1a-0", "1a-1", "1a-5"), former, Request(48, 8, 24))
    assert found.moved == (0,)
    assert [repair.group for repair in found.repaired] == [1]
    assert set(on(found, 1)) == {"1a-2", "1a-3", "1a-4"}


def test_a_domain_that_the_run_uses_already_costs_nothing_more() -> None:
    # 1b is the tighter fit and is not used yet; 3a is, and has room for one more.
    nodes = [*domain("1a", 8), *domain("1b", 8), *domain("3a", 8, 8, 8)]
    former = (group(0, "1a", "1a-0"), group(1, "3a", "3a-0"))
    found = again(without(nodes, "1a-0"), former, Request(16, 8, 8))
    assert found.plan.groups[0].place == place("3a")
    assert found.plan.metrics.domains == 1


def test_a_run_in_one_domain_stays_there_if_it_can_be_repaired_and_else_moves_whole() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("2a", 8, 8)]
    former = (group(0, "1a", "1a-0"), group(1, "1a", "1a-1"))
    request = Request(16, 8, 8, may_spread=False)
    stays = again(without(nodes, "1a-1"), former, request)
    assert (stays.kept, stays.moved, on(stays, 1)) == ((0,), (), ["1a-2"])
    moves = again(without(nodes, "1a-1", "1a-2"), former, request)
    assert moves.moved == (0, 1)
    assert {group.place for group in moves.plan.groups} == {place("2a")}


def test_a_ceiling_that_shrank_moves_as_few_groups_as_it_must() -> None:
    gold, tin = frozenset({"gold"}), frozenset({"tin"})
    nodes = [*domain("1a", 8, 8, 8, scopes=gold), *domain("1b", 8, 8, scopes=tin)]
    former = tuple(group(number, "1a", f"1a-{number}", scope="gold") for number in range(3))
    found = again(nodes, former, Request(24, 8, 8, ceilings=(Ceiling("gold", 16), Ceiling("tin", 99))))
    assert (len(found.kept), len(found.moved)) == (2, 1)
    assert sorted(group.scope for group in found.plan.groups) == ["gold", "gold", "tin"]


def test_spares_of_one_scope_make_room_for_those_of_another_that_can_be_nowhere_else() -> None:
    gold, tin = frozenset({"gold"}), frozenset({"tin"})
    # Both groups lose their node; each is repaired, and one spare of each finds no slot in its domain.
    nodes = [*domain("1a", 8, 8, scopes=tin), *domain("1b", 8, 8, scopes=gold)]
    nodes += [*domain("2a", 8, scopes=gold | tin), *domain("2b", 8, scopes=tin)]
    former = (
        group(0, "1a", "1a-0", spares=("1a-1",), scope="tin"),
        group(1, "1b", "1b-0", spares=("1b-1",), scope="gold"),
    )
    ceilings = (Ceiling("gold", 99), Ceiling("tin", 99))
    found = again(without(nodes, "1a-0", "1b-0"), former, Request(16, 8, 8, spares=1, ceilings=ceilings))
    assert (on(found, 0), on(found, 1), found.moved) == (["1a-1"], ["1b-1"], ())
    assert (ready(found, 0), ready(found, 1)) == ([("2b-0", Distance.CLUSTER)], [("2a-0", Distance.CLUSTER)])


def test_a_group_that_lost_nothing_makes_way_where_the_others_do_not_fit_beside_it() -> None:
    nodes = [*domain("1a", 8, 8), *domain("1b", 8, 8)]
    # The short group stands where alone the whole one fits now.
    former = (group(0, "1a", "1a-0", "1a-1"), group(1, "1b", "1b-0"))
    found = again(without(nodes, "1a-1"), former, Request(24, 8, 16))
    assert (on(found, 0), on(found, 1)) == (["1b-0", "1b-1"], ["1a-0"])
    assert (found.kept, found.moved) == ((), (0, 1))
    assert "some of these may move as well" in found.reasons[1]


def test_only_the_short_group_makes_way_where_the_slots_that_it_has_are_the_last_for_a_whole_one() -> None:
    lost = [node for name in "abcdefghi" for node in domain(f"1{name}", 8, 8)][1:]
    former = (
        *(group(number, f"1{name}", f"1{name}-0", f"1{name}-1") for number, name in enumerate("abcdefghi")),
        group(9, "2z", "2z-0"),
    )
    found = again([*lost[1:], *domain("2z", 8, 8), *domain("3y", 8)], former, Request(152, 8, 16))
    assert (found.kept, found.moved) == (tuple(range(1, 9)), (0, 9))
    assert (on(found, 0), on(found, 9)) == (["2z-0", "2z-1"], ["3y-0"])


def test_a_malleable_run_gives_up_the_groups_with_the_highest_numbers_among_the_lost() -> None:
    nodes = [*domain("1a", 8), *domain("1b", 8), *domain("1c", 8), *domain("1d", 8)]
    former = tuple(group(number, f"1{name}", f"1{name}-0") for number, name in enumerate("abcd"))
    request = Request(32, 8, 8, malleability=Malleability(8, 8))
    found = again([*without(nodes, "1a-0", "1c-0"), *domain("2a", 8)], former, request)
    assert [group.index for group in found.plan.groups] == [0, 1, 3]
    assert (found.plan.gpus, found.kept, found.moved) == (24, (1, 3), (0,))
    assert any("group 2 of the former plan runs no more" in reason for reason in found.reasons)


def test_a_malleable_run_that_became_smaller_grows_again_around_what_stands() -> None:
    former = (group(1, "1b", "1b-0"), group(3, "1d", "1d-0"))
    nodes = [*domain("1a", 8), *domain("1b", 8), *domain("1c", 8), *domain("1d", 8)]
    found = again(nodes, former, Request(32, 8, 8, malleability=Malleability(8, 8)))
    assert (found.kept, found.moved) == ((1, 3), ())
    assert [group.place.domain for group in found.plan.groups] == ["a", "b", "c", "d"]


def test_what_does_not_fit_at_all_is_refused_as_a_plan_is() -> None:
    nodes = domain("1a", 8)
    former = (group(0, "1a", "1a-0", "1a-1"),)
    found = replan(nodes, FormerPlan(former), Request(16, 8, 16), "v2")
    assert isinstance(found, Refusal)
    assert found == plan(nodes, Request(16, 8, 16), "v2")


def test_what_is_far_larger_than_the_cluster_is_refused_without_being_counted_out() -> None:
    former = (group(0, "1a", "1a-0"),)
    found = replan(domain("1a", 8), FormerPlan(former), Request(8 * 10**8, 8, 8), "v2")
    assert isinstance(found, Refusal)
    smaller = again(domain("1a", 8), former, Request(8 * 10**8, 8, 8, malleability=Malleability(8, 8)))
    assert (smaller.plan.gpus, smaller.kept) == (8, (0,))


def test_where_there_are_no_nodes_any_more_the_run_is_refused() -> None:
    assert isinstance(replan([], FormerPlan((group(0, "1a", "1a-0"),)), Request(8, 8, 8), "v2"), Refusal)


def test_a_run_without_a_former_plan_is_planned_as_any_other() -> None:
    nodes = [*domain("1a", 8, 8, 8), *domain("1b", 8, 8)]
    found = again(nodes, (), TWO_OF_TWO)
    made = plan(nodes, TWO_OF_TWO, "v2")
    assert isinstance(made, Plan)
    assert found.plan.groups == made.groups
    assert (found.kept, found.repaired, found.moved) == ((), (), ())


def test_fewer_spares_leave_the_groups_where_they_are() -> None:
    nodes = domain("1a", 8, 8, 8)
    former = (group(0, "1a", "1a-0", spares=("1a-1", "1a-2")),)
    found = again(nodes, former, Request(8, 8, 8, spares=1))
    assert found.kept == (0,)
    assert ready(found, 0) == [("1a-1", Distance.DOMAIN)]


def test_a_run_that_becomes_smaller_drops_its_last_groups_and_shortens_the_one_that_becomes_the_last() -> None:
    nodes = domain("1a", 8, 8, 8, 8, 8, 8)
    former = tuple(group(number, "1a", f"1a-{2 * number}", f"1a-{2 * number + 1}") for number in range(3))
    found = again(nodes, former, Request(24, 8, 16))
    assert [group.gpus for group in found.plan.groups] == [16, 8]
    assert (found.kept, found.moved) == ((0,), ())
    assert found.repaired == (Repair(1, (Share("1a-3", 8),), (), spares=0),)


def test_a_node_that_is_in_another_domain_now_is_lost() -> None:
    former = (group(0, "1a", "1a-0"),)
    moved = [Node("1a-0", place("1b"), 8, 8), *domain("1a", 0, 8)[1:]]
    assert on(again(moved, former, Request(8, 8, 8)), 0) == ["1a-1"]


def test_pods_of_another_size_all_move() -> None:
    found = again(domain("1a", 8, 8), (group(0, "1a", "1a-0"),), Request(12, 6, 12))
    assert found.moved == (0,)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((group(1, "1a", "1a-0"), group(1, "1a", "1a-1")), "group 1 .* twice"),
        ((group(-1, "1a", "1a-0"),), "group -1 .* out of order"),
        ((Group(0, 16, place("1a"), "", (Share("x", 8),)),), "group 0 .* says 16 GPUs"),
        ((Group(0, 0, place("1a"), "", (Share("x", 8), Share("y", -8))),), "impossible number"),
        ((Group(0, 16, place("1a"), "", (Share("x", 8), Share("x", 8))),), "a node twice"),
    ],
)
def test_what_no_plan_can_be_is_refused(groups: tuple[Group, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FormerPlan(groups)
