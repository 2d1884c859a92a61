"""Drawn losses, with former plans that no planner made: plans can be carried out, and the fewest groups move."""

import pytest
from gkm.packing.replanning.replan import replan
from gkm.packing.values import FormerPlan, Replanned
from support.packing.checker import false_groups
from support.packing.draws_losses import Loss, loss_drawn
from support.packing.replanning import Search
from support.packing.replanning_checker import wrong

MOST_WAYS = 3_000
"""Ways to give touched groups homes, up to which they are tried."""


@pytest.mark.parametrize("first", range(0, 140, 20))
def test_drawn_losses_move_the_fewest_groups(first: int) -> None:
    for seed in range(first, first + 20):
        loss = loss_drawn(seed)
        answer = replan(loss.nodes, FormerPlan(loss.former), loss.request, "v2")
        if isinstance(answer, Replanned):
            assert false_groups(loss.nodes, loss.request, answer.plan.groups, spares_may_lack=True) == [], seed
        if [group.gpus for group in loss.former] == _sizes(loss):
            _judge(loss, answer if isinstance(answer, Replanned) else None, seed)


def _sizes(loss: Loss) -> list[int]:
    run = loss.request
    return [run.group_gpus] * (run.groups - 1) + [run.last_pods * run.pod_gpus]


def _judge(loss: Loss, answer: Replanned | None, seed: int) -> None:
    """Compare a plan with the fewest moves in every way there is, untouched groups released only where none fits."""
    for released in (False, True):
        search = Search(loss.nodes, loss.former, loss.request, released=released)
        if len(search.homes) ** len(search.touched) > MOST_WAYS:
            return
        fewest = search.fewest_moved()
        if fewest is not None:
            assert answer is not None, seed
            homes = {group.index: (group.place, group.scope) for group in loss.former}
            moved = sum(homes[group.index] != (group.place, group.scope) for group in answer.plan.groups)
            assert moved == fewest, seed
            assert wrong(loss.nodes, loss.former, loss.request, answer, released=released) == [], seed
            return
    assert answer is None, seed
