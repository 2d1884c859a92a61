"""After a loss no plan moves fewer groups, and nobody is touched who need not be: judged by trying every home.

`GKM_PACKING_EXAMPLES` is how many examples there are, as in test_brute_force.
"""

import os
from dataclasses import replace
from random import Random
from typing import cast

import pytest
from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.values import (
    Ceiling,
    FormerPlan,
    Group,
    Location,
    Malleability,
    Node,
    Plan,
    Refusal,
    Replanned,
    Request,
    Share,
    Within,
)
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from support.packing.cases import Case, cases, scoped_cases
from support.packing.replanning import Search, all_spares_at_home
from support.packing.replanning_checker import wrong

EXAMPLES = int(os.environ.get("GKM_PACKING_EXAMPLES", "400"))
many = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(0 if EXAMPLES > 400 else 300)]

HERE = Location("r", "c", "b", "d1")
Loss = tuple[tuple[Node, ...], tuple[Group, ...], Request]


# Group 1 has lost its slot, and the run may not spread. There is no other beside group 0; the other domain has two
# slots, and none for a spare.
MOVES_AS_A_WHOLE: Loss = (
    (Node("n1", HERE, 4, 1), Node("n2", Location("r", "c", "b", "d2"), 2, 2)),
    (Group(0, 1, HERE, "", (Share("n1", 1),)), Group(1, 1, HERE, "", (Share("n1", 1),))),
    Request(2, 1, 1, spares=1, may_spread=False),
)


def lower(ceiling: Ceiling) -> st.SearchStrategy[Ceiling]:
    return st.integers(ceiling.gpus // 2, ceiling.gpus).map(lambda gpus: Ceiling(ceiling.scope, gpus))


@st.composite
def losses(draw: st.DrawFn, some: st.SearchStrategy[Case]) -> Loss:
    """Return the nodes that are left of an inventory, the groups that were planned on it, and the run."""
    nodes, request = draw(some)
    within = draw(st.sampled_from([None, None, None, *Within]))
    request = replace(request, within=within, balanced=draw(st.sampled_from([False, False, False, True])))
    made = plan(nodes, request, "v1")
    assume(isinstance(made, Plan))
    assert isinstance(made, Plan)
    request = replace(request, gpus=made.gpus, malleability=None)
    taken = sorted({name for group in made.groups for name, _ in group.nodes})
    others = sorted({node.name for node in nodes} - set(taken))
    lost = set(draw(st.lists(st.sampled_from(taken), max_size=2, unique=True)))
    lost |= set(draw(st.lists(st.sampled_from(others), max_size=2, unique=True))) if others else set()
    shrunk = draw(st.sampled_from([*taken, "", ""]))
    left = [
        replace(node, free=draw(st.integers(0, node.free))) if node.name == shrunk else node
        for node in nodes
        if node.name not in lost
    ]
    lowered = draw(st.booleans())
    if lowered and request.ceilings:
        request = replace(request, ceilings=draw(st.tuples(*(lower(ceiling) for ceiling in request.ceilings))))
    return tuple(left), made.groups, request


def staying(former: tuple[Group, ...], made: Plan) -> int:
    before = {group.index: (group.place, group.scope) for group in former}
    return sum(before[group.index] == (group.place, group.scope) for group in made.groups)


def judge(loss: Loss) -> Replanned | None:
    """Return the plan, None where the run was refused; both as they must be."""
    nodes, former, request = loss
    fewest = Search(nodes, former, request).fewest_moved()
    answer = replan(nodes, FormerPlan(former), request, "v2")
    if fewest is None:
        released = Search(nodes, former, request, released=True).fewest_moved()
        if released is None:
            assert answer == plan(nodes, request, "v2")
            assert isinstance(answer, Refusal)
            return None
        assert isinstance(answer, Replanned), answer
        assert len(former) - staying(former, answer.plan) == released
        assert wrong(nodes, former, request, answer, released=True) == []
        return None
    assert isinstance(answer, Replanned), answer
    assert len(former) - staying(former, answer.plan) == fewest
    assert wrong(nodes, former, request, answer) == []
    return answer


@many
@given(losses(cases()))
def test_no_plan_costs_less_where_groups_stay(loss: Loss) -> None:
    _, former, request = loss
    answer = judge(loss)
    if answer is None or not all_spares_at_home(former) or not request.may_spread:
        return
    search = Search(*loss)
    expected = search.fewest()
    assert expected is not None
    assert search.cost_of(answer.plan.groups) == expected
    before = {group.index: dict(group.nodes) for group in former}
    stood = sum(
        min(gpus, before[group.index].get(name, 0))
        for group in answer.plan.groups
        for name, gpus in group.nodes
        if group.place == next(old.place for old in former if old.index == group.index)
    )
    assert (request.gpus - stood) // request.pod_gpus <= expected.pods
    if all(len(group.spares) == request.spares for group in answer.plan.groups):
        away = sum(any(spare.place != group.place for spare in group.spares) for group in answer.plan.groups)
        assert away == expected.policy[0]


@many
@given(losses(scoped_cases()))
def test_the_fewest_groups_move_where_scopes_pay_and_their_ceilings_shrink(loss: Loss) -> None:
    judge(loss)


@settings(many, max_examples=EXAMPLES // 3)
@given(losses(st.one_of(cases(), scoped_cases())))
@example(MOVES_AS_A_WHOLE)
def test_a_malleable_run_that_must_be_smaller_keeps_what_stands_and_as_much_as_fits(loss: Loss) -> None:
    nodes, former, request = loss
    assume(request.gpus % request.group_gpus == 0 and not request.balanced)
    flexible = replace(request, malleability=Malleability(request.group_gpus, request.group_gpus))
    whole = (Search(nodes, former, request, released=released).fewest_moved() for released in (False, True))
    if any(fewest is not None for fewest in whole):
        # Its full size comes before all moves and all spares: no run is smaller that could be whole.
        judge((nodes, former, flexible))
        return
    answer = replan(nodes, FormerPlan(former), flexible, "v2")
    search = Search(nodes, former, request)
    expected = search.smaller()
    if expected is None:
        assert answer == plan(nodes, flexible, "v2") or "from scratch" in cast("Replanned", answer).reasons[0]
        return
    assert isinstance(answer, Replanned)
    assert (len(answer.plan.groups), len(answer.plan.groups) - staying(former, answer.plan)) == expected
    after = {group.index: group for group in answer.plan.groups}
    assert [after[group.index].nodes for group in search.stay] == [group.nodes for group in search.stay]


@many
@given(st.one_of(cases(), scoped_cases()))
def test_without_a_loss_nothing_changes(case: Case) -> None:
    nodes, request = case
    made = plan(nodes, request, "v1")
    if isinstance(made, Refusal):
        assert replan(nodes, FormerPlan(()), request, "v1") == made
        return
    same = replace(request, gpus=made.gpus, malleability=None)
    again = replan(nodes, FormerPlan(made.groups), same, "v1")
    assert isinstance(again, Replanned)
    assert again.plan.groups == made.groups
    assert (again.kept, again.repaired, again.moved) == (tuple(range(len(made.groups))), (), ())


@settings(many, max_examples=EXAMPLES // 3)
@given(losses(st.one_of(cases(), scoped_cases())), st.randoms(use_true_random=False))
def test_the_order_of_nodes_changes_nothing(loss: Loss, chance: Random) -> None:
    nodes, former, request = loss
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    assert repr(replan(shuffled, FormerPlan(former), request, "v2")) == repr(
        replan(nodes, FormerPlan(former), request, "v2")
    )
