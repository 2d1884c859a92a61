"""Former plans that nobody made: whatever they say, the answer is a plan that can be carried out, or a refusal."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from gkm.packing.replanning.replan import replan
from gkm.packing.values import (
    Distance,
    FormerPlan,
    Group,
    Location,
    Node,
    Replanned,
    Request,
    Share,
    Spare,
    TooLargeError,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.cases import Case, cases, scoped_cases
from support.packing.checker import problems

HERE, THERE = Location("r", "c", "1", "a"), Location("r", "c", "1", "b")
ABOUT_SPARES = ("spares stay within", "is nearer and has", "share nodes", "shares node", " spares, not ")
"""What may be said of a plan where spares stood elsewhere or are lacking; that is judged by other tests."""


def nodes(count: int, place: Location = HERE) -> list[Node]:
    return [Node(f"{place.domain}-{number}", place, 8, 8) for number in range(count)]


def group(index: int, *shares: tuple[str, int], place: Location = HERE) -> Group:
    return Group(index, sum(gpus for _, gpus in shares), place, "", tuple(Share(*share) for share in shares))


def again(some: list[Node], former: tuple[Group, ...], request: Request) -> Replanned:
    found = replan(some, FormerPlan(former), request, "v2")
    assert isinstance(found, Replanned), found
    assert [problem for problem in problems(some, request, found.plan) if _hard(problem)] == []
    return found


def _hard(problem: str) -> bool:
    return not any(words in problem for words in ABOUT_SPARES)


@st.composite
def hostile(draw: st.DrawFn, some: st.SearchStrategy[Case]) -> tuple[Case, tuple[Group, ...]]:
    """Return a case and groups that may name any node, place, scope and size."""
    known, request = draw(some)
    names = st.sampled_from([*(node.name for node in known), "gone", ""])
    places = st.sampled_from([*(node.place for node in known), HERE])
    scopes = st.sampled_from(["", "s1", "s2", "unknown"])
    spares = st.builds(Spare, names, st.integers(-1, 5), places, st.sampled_from(list(Distance)))
    shares = st.lists(st.builds(Share, names, st.integers(1, 9)), max_size=4, unique_by=lambda share: share.node)
    found = []
    for index in sorted(draw(st.sets(st.integers(0, 7), max_size=5))):
        taken = tuple(draw(shares))
        ready = tuple(draw(st.lists(spares, max_size=3)))
        size = sum(gpus for _, gpus in taken)
        found.append(Group(index, size, draw(places), draw(scopes), taken, ready))
    return (known, replace(request, malleability=None)), tuple(found)


@settings(max_examples=examples(300))
@given(st.one_of(hostile(cases()), hostile(scoped_cases())), st.randoms(use_true_random=False))
def test_whatever_a_former_plan_says_the_answer_can_be_carried_out(
    some: tuple[Case, tuple[Group, ...]], chance: Random
) -> None:
    (known, request), former = some
    try:
        answer = replan(known, FormerPlan(former), request, "v2")
    except TooLargeError as error:
        assert "too" in str(error)
        return
    if isinstance(answer, Replanned):
        assert [problem for problem in problems(known, request, answer.plan) if _hard(problem)] == []
        told = [*answer.kept, *answer.moved, *(repair.group for repair in answer.repaired)]
        assert sorted(told) == [one.index for one in answer.plan.groups if one.index in {old.index for old in former}]
    shuffled = list(known)
    chance.shuffle(shuffled)
    assert replan(shuffled, FormerPlan(former), request, "v2") == answer


def test_groups_on_nodes_that_are_gone_are_placed_anew() -> None:
    found = again(nodes(2), (group(0, ("x", 8), ("y", 8)),), Request(16, 8, 16))
    assert [name for name, _ in found.plan.groups[0].nodes] == ["a-0", "a-1"]
    assert found.kept == ()


def test_of_two_groups_on_one_slot_the_first_has_it() -> None:
    found = again(nodes(2), (group(0, ("a-0", 8)), group(1, ("a-0", 8))), Request(16, 8, 8))
    assert (found.kept, [repair.group for repair in found.repaired]) == ((0,), [1])


def test_more_gpus_than_a_node_has_stand_as_far_as_they_can() -> None:
    found = again(nodes(2), (group(0, ("a-0", 800)),), Request(16, 8, 16))
    assert found.repaired[0].lost == (Share("a-0", 792),)
    assert found.repaired[0].taken == (Share("a-1", 8),)


def test_a_group_of_which_one_node_went_to_another_domain_is_repaired_in_its_own() -> None:
    relabelled = [replace(node, place=THERE) if node.name == "a-0" else node for node in nodes(3)]
    found = again(relabelled, (group(0, ("a-0", 8), ("a-1", 8)),), Request(16, 8, 16))
    assert [name for name, _ in found.plan.groups[0].nodes] == ["a-1", "a-2"]
    assert (found.kept, found.moved, len(found.repaired)) == ((), (), 1)


def test_a_number_that_the_run_does_not_have_is_dropped_and_said_to_be() -> None:
    found = again(nodes(2), (group(10**9, ("a-1", 8)),), Request(8, 8, 8))
    assert [one.index for one in found.plan.groups] == [0]
    assert "group 1000000000 of the former plan runs no more: the run is of 8 GPUs" in found.reasons


def test_more_spares_than_the_run_has_and_none_that_can_be_are_left_out() -> None:
    wrong_size, far = Spare("a-1", -8, HERE, Distance.DOMAIN), Spare("b-0", 8, HERE, Distance.DOMAIN)
    ready = Spare("a-2", 8, HERE, Distance.NONE)
    former = (replace(group(0, ("a-0", 8)), spares=(wrong_size, far, ready, ready, ready)),)
    found = again([*nodes(4), *nodes(1, THERE)], former, Request(8, 8, 8, spares=1))
    assert found.plan.groups[0].spares == (Spare("a-2", 8, HERE, Distance.DOMAIN),)


def test_a_group_of_a_scope_that_the_run_does_not_name_any_more_stays_on_its_nodes() -> None:
    from_gold = (replace(group(0, ("a-0", 8)), scope="gold"),)
    found = again(nodes(1), from_gold, Request(8, 8, 8))
    assert (found.kept, found.moved) == ((0,), ())


@pytest.mark.parametrize("gpus", [True, 8.0, float("nan")])
def test_what_is_no_whole_number_of_gpus_is_refused(gpus: Any) -> None:  # noqa: ANN401 -- as JSON could say it
    with pytest.raises(ValueError, match="impossible number of GPUs"):
        FormerPlan((Group(0, 8, HERE, "", (Share("a-0", gpus),)),))
