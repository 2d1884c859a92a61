"""Several nodes lost at once: the fewest groups move, as an independent integer program says, and the others stay.

Runs have rules for areas or none. `GKM_PACKING_EXAMPLES` is how many seeds are drawn of each: without it those that
support.examples runs of 120.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.values import AreaRule, FormerPlan, Group, Level, Location, Node, Plan, Refusal, Replanned, Request
from support.examples import examples
from support.packing.area_rules import Moves, broken_rules, drawn, located
from support.packing.checker import false_groups
from support.packing.replanning import standing, untouched

EXAMPLES = os.environ.get("GKM_PACKING_EXAMPLES")
SEEDS = int(EXAMPLES or 120)
DRAWN = SEEDS if EXAMPLES else examples(SEEDS)


@cache
def before_the_loss(seed: int, *, ruled: bool) -> tuple[Sequence[Node], Request, Plan | Refusal]:
    nodes, request = drawn(seed)
    request = request if ruled else replace(request, per_area=())
    return nodes, request, plan(nodes, request, "v")


def moved(former: Sequence[Group], groups: Sequence[Group]) -> int:
    before = {group.index: group.place for group in former}
    return sum(before[group.index] != group.place for group in groups)


def judge(nodes: Sequence[Node], former: Sequence[Group], request: Request, seed: int) -> bool:
    """Compare a plan after a loss with the fewest moves, beside the untouched or else of all. Return if one fits."""
    answer = replan(nodes, FormerPlan(tuple(former)), request, "w")
    left = located(nodes, request)
    spares = 0 if any(standing(left, former, request).values()) else request.spares
    stay = untouched(left, former, request)
    fewest = Moves(nodes, former, request, stay, spares).fewest()
    released = fewest is None
    if released:
        fewest = Moves(nodes, former, request, [], spares).fewest()
    if fewest is None:
        assert not isinstance(answer, Replanned), f"seed {seed}: planned what does not fit"
        return False
    assert isinstance(answer, Replanned), f"seed {seed}: refused ({answer}), and this moves {fewest} groups"
    groups = answer.plan.groups
    wrong = [*false_groups(nodes, request, groups, spares_may_lack=True), *broken_rules(nodes, request, groups)]
    assert wrong == [], seed
    assert moved(former, groups) == fewest, seed
    after = {group.index: group for group in groups}
    assert released or all(after[group.index].nodes == group.nodes for group in stay), seed
    return True


@pytest.mark.parametrize("lost", [1, 2, 5])
@pytest.mark.parametrize("ruled", [True, False], ids=["rules", "no rules"])
def test_a_loss_of_several_nodes_moves_the_fewest_groups(*, ruled: bool, lost: int) -> None:
    fits = 0
    for seed in range(DRAWN):
        nodes, request, made = before_the_loss(seed, ruled=ruled)
        if isinstance(made, Plan):
            used = sorted({share.node for group in made.groups for share in group.shares})
            gone = set(Random(f"{lost} of {seed}").sample(used, min(lost, len(used))))
            fits += judge([node for node in nodes if node.name not in gone], made.groups, request, seed)
    assert fits >= DRAWN // 12, "hardly any run fits after its loss"


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_a_rule_that_comes_later_moves_the_fewest_groups(seed: int) -> None:
    nodes, _, made = before_the_loss(seed, ruled=False)
    if isinstance(made, Plan):
        judge(nodes, made.groups, drawn(seed)[1], seed)


def test_layers_stay_together_when_nodes_of_two_are_lost() -> None:
    """Two layers in a rack lose three places: by counts three groups would move, and then a layer would be divided."""
    place = {name: Location("r", "c", name, name) for name in ("b1", "b2")}
    nodes = [Node(f"{block}-{number}", place[block], 1, 1) for block in place for number in range(6)]
    request = Request(6, 1, 1, per_area=(AreaRule(Level.BLOCK, multiple=3),))
    made = plan(nodes, request, "v")
    assert isinstance(made, Plan)
    where = {share.node: group.index for group in made.groups for share in group.nodes}
    left = [node for node in nodes if where.get(node.name) not in (0, 3, 4)]
    answer = replan(left, FormerPlan(made.groups), request, "w")
    assert isinstance(answer, Replanned)
    assert (
        len({group.place for group in answer.plan.groups[:3]})
        == len({group.place for group in answer.plan.groups[3:]})
        == 1
    )
    assert moved(made.groups, answer.plan.groups) == 3
