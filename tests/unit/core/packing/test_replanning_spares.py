"""Spares after a loss: they keep no group from staying, and they lack only where there is no room for them."""

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
    Policy,
    Refusal,
    Replanned,
    Request,
    Share,
    Spare,
)
from support.packing.replanning_checker import wrong

ONE_SPARE = Request(gpus=16, pod_gpus=8, group_gpus=16, spares=1)


def place(name: str) -> Location:
    return Location("r", "c", name[0], name[1:])


def domain(name: str, count: int, *scopes: str) -> list[Node]:
    """Return nodes of 8 GPUs of a domain, "1a": domain a of block 1. Their names are 1a-0, 1a-1 and so on."""
    return [Node(f"{name}-{number}", place(name), 8, 8, frozenset(scopes)) for number in range(count)]


def group(index: int, name: str, *nodes: int, spares: tuple[int, ...] = (), scope: str = "") -> Group:
    ready = tuple(Spare(f"{name}-{number}", 8, place(name), Distance.DOMAIN) for number in spares)
    shares = tuple(Share(f"{name}-{number}", 8) for number in nodes)
    return Group(index, 8 * len(nodes), place(name), scope, shares, ready)


def again(nodes: list[Node], former: tuple[Group, ...], request: Request) -> Replanned:
    """Return the plan; whatever the independent checker has against it fails the test."""
    found = replan(nodes, FormerPlan(former), request, "v2")
    assert isinstance(found, Replanned), found
    if request.malleability is None:
        assert wrong(nodes, former, request, found) == []
    return found


def counts(found: Replanned) -> list[int]:
    return [len(group.spares) for group in found.plan.groups]


def test_a_run_that_lost_only_a_spare_stays_without_it_where_there_is_no_room() -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)),)
    found = again(domain("1a", 2), former, ONE_SPARE)
    assert (found.kept, found.repaired, found.moved, counts(found)) == ((0,), (), (), [0])
    assert found.reasons[-1] == ("1 spare finds no slot on the nodes that the run may use: group 0 has fewer than 1")


def test_a_spare_takes_the_place_of_a_pod_where_no_other_can_be_made() -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)),)
    found = again(domain("1a", 3)[1:], former, ONE_SPARE)
    assert [name for name, _ in found.plan.groups[0].nodes] == ["1a-1", "1a-2"]
    assert (found.moved, found.spares_used, counts(found)) == ((), 1, [0])


def test_a_malleable_run_is_not_made_smaller_for_the_sake_of_its_spares() -> None:
    former = (group(0, "1a", 0, spares=(1,)), group(1, "1a", 2, spares=(3,)))
    request = Request(16, 8, 8, spares=1, malleability=Malleability(8, 8))
    found = again(domain("1a", 3), former, request)
    assert (found.plan.gpus, found.kept, counts(found)) == (16, (0, 1), [1, 0])


def test_a_run_in_one_domain_does_not_leave_it_for_a_spare() -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)),)
    request = Request(16, 8, 16, spares=1, may_spread=False)
    found = again([*domain("1a", 2), *domain("2a", 4)], former, request)
    assert (found.kept, counts(found)) == ((0,), [0])
    assert "1 spare finds no slot in their domain" in found.reasons[-1]


def test_a_run_in_one_domain_that_must_leave_it_goes_where_its_spares_have_room() -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)),)
    request = Request(16, 8, 16, spares=1, may_spread=False)
    # 2a is the tighter fit, and has no room for the spare.
    found = again([*domain("1a", 1), *domain("2a", 2), *domain("3a", 4)], former, request)
    assert (found.plan.groups[0].place, found.moved, counts(found)) == (place("3a"), (0,), [1])


def test_a_ceiling_that_gives_too_little_takes_spares_and_not_groups() -> None:
    nodes = [*domain("1a", 4, "gold"), *domain("1b", 4, "tin")]
    former = (group(0, "1a", 0, spares=(1,), scope="gold"), group(1, "1a", 2, spares=(3,), scope="gold"))
    one = again(nodes, former, Request(16, 8, 8, spares=1, ceilings=(Ceiling("gold", 24),)))
    assert (one.kept, counts(one)) == ((0, 1), [1, 0])
    two = again(nodes, former, Request(16, 8, 8, spares=1, ceilings=(Ceiling("gold", 24), Ceiling("tin", 32))))
    assert (two.kept, counts(two)) == ((0, 1), [1, 0])
    assert "1 spare finds no slot in their scope: group 1 has fewer than 1" in two.reasons


def test_a_group_that_moves_goes_where_the_spares_of_all_have_room_if_that_moves_nobody_else() -> None:
    nodes = [*domain("1b", 1, "gold"), *domain("2a", 2, "tin")]
    former = (group(0, "1a", 0, scope="gold"),)
    ceilings = (Ceiling("gold", 8), Ceiling("tin", 16))
    request = Request(8, 8, 8, spares=1, ceilings=ceilings)
    found = again(nodes, former, request)
    assert (found.plan.groups[0].scope, found.moved, counts(found)) == ("tin", (0,), [1])


def test_who_has_no_spare_comes_before_who_has_one() -> None:
    former = (group(0, "1a", 0), group(1, "1a", 1))
    found = again(domain("1a", 4), former, Request(16, 8, 8, spares=2))
    assert sum(counts(found)) == 2
    paid = (group(0, "1a", 0, scope="gold"), group(1, "1a", 1, scope="gold"))
    limited = again(domain("1a", 6, "gold"), paid, Request(16, 8, 8, spares=2, ceilings=(Ceiling("gold", 32),)))
    assert counts(limited) == [1, 1]


def test_a_spare_that_a_pod_came_to_stand_beside_changes_places_though_no_other_can_be_had() -> None:
    nodes = [Node(f"1a-{number}", place("1a"), 2, free, frozenset({"gold"})) for number, free in enumerate((1, 2, 2))]

    def one(index: int, spare: int) -> Group:
        ready = Spare(f"1a-{spare}", 1, place("1a"), Distance.DOMAIN)
        return Group(index, 1, place("1a"), "gold", (Share("1a-0", 1),), (ready, ready))

    found = again(nodes, (one(0, 1), one(1, 2)), Request(2, 1, 1, spares=2, ceilings=(Ceiling("gold", 5),)))
    assert (found.kept, counts(found)) == ((0,), [2, 1])
    assert found.plan.groups[1].spares[0].node != found.plan.groups[1].nodes[0].node


def test_a_new_group_takes_no_spare_of_those_that_run() -> None:
    former = (group(0, "1a", 0, spares=(1,)),)
    assert isinstance(replan(domain("1a", 2), FormerPlan(former), Request(16, 8, 8, spares=1), "v2"), Refusal)
    grows = Request(16, 8, 8, spares=1, malleability=Malleability(8, 8))
    found = again(domain("1a", 2), former, grows)
    assert (found.plan.gpus, found.kept, counts(found)) == (8, (0,), [1])


def test_a_run_of_which_nothing_stands_has_all_its_spares_or_is_refused() -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)),)
    nodes = domain("2a", 2)
    assert replan(nodes, FormerPlan(former), ONE_SPARE, "v2") == plan(nodes, ONE_SPARE, "v2")


@pytest.mark.parametrize("policy", list(Policy))
def test_what_a_plan_that_lacks_spares_costs_is_true(policy: Policy) -> None:
    former = (group(0, "1a", 0, 1, spares=(2,)), group(1, "2a", 0, 1, spares=(2,)))
    request = Request(32, 8, 16, spares=1, policy=policy)
    found = again([*domain("1a", 2), *domain("2a", 3)], former, request)
    assert (found.kept, counts(found)) == ((0, 1), [0, 1])
    assert (found.plan.metrics.domains, found.plan.metrics.stranded_gpus) == (2, 0)


def test_spares_that_nobody_could_ever_have_are_counted_and_not_tried_one_by_one() -> None:
    found = again(domain("1a", 4), (group(0, "1a", 0),), Request(8, 8, 8, spares=10**9))
    assert (found.kept, counts(found)) == ((0,), [3])


def test_how_near_a_spare_is_is_worked_out_again() -> None:
    says = Spare("2a-0", 8, place("2a"), Distance.DOMAIN)
    former = (Group(0, 16, place("1a"), "", (Share("1a-0", 8), Share("1a-1", 8)), (says,)),)
    found = again([*domain("1a", 2), *domain("2a", 1)], former, ONE_SPARE)
    assert [spare.distance for spare in found.plan.groups[0].spares] == [Distance.CLUSTER]
