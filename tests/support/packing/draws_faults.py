"""What is wrong with the planner's answer to a draw: each fault has a letter, and a sentence with figures.

A  the plan breaks its own sums, or the planner found that out     B  more groups or pods move than must
C  a spare is beside its own group without need                     D  refused as too large
E  a gap on a plan that is optimal                                  F  costs in the former order of costs
G  a group is on more nodes than need be                            R  refused, though the run fits, or the reverse
T  a group was touched that could stay                              W  costs more than the best plan
"""

from collections.abc import Iterator
from typing import NamedTuple

from gkm.packing.plan import plan
from gkm.packing.replanning.replan import replan
from gkm.packing.values import FormerPlan, Plan, Policy, Refusal, Replanned
from support.packing.checker import false_groups
from support.packing.costs import Cost, cost_of
from support.packing.draws import Draw
from support.packing.draws_losses import Loss
from support.packing.reference import least_cost
from support.packing.reference_layout import best_layout, layout_of
from support.packing.reference_moves import (
    Fewest,
    Remains,
    costs_after,
    fewest_moves,
    moved_of,
    pods_moved_of,
)

VERSION = "v"
FORMER = {
    Policy.FEWEST_DOMAINS: ("elsewhere", "domains", "free", "blocks"),
    Policy.FEWEST_BLOCKS: ("elsewhere", "blocks", "domains", "free"),
    Policy.LEAST_WASTE: ("elsewhere", "free", "domains", "blocks"),
}


class Fault(NamedTuple):
    """What is wrong, by its letter."""

    letter: str
    sentence: str


def faults(draw: Draw) -> list[Fault]:
    """Return what is wrong with the plan of a run."""
    try:
        answer = plan(draw.nodes, draw.request, VERSION)
    except Exception as error:  # noqa: BLE001 whatever the planner raises is a fault with a name
        return [_raised(error)]
    return list(_of_plan(draw, answer))


def _raised(error: Exception) -> Fault:
    letter = {"TooLargeError": "D", "InvalidPlanError": "A"}.get(type(error).__name__, "X")
    return Fault(letter, f"{type(error).__name__}: {error}")


def _of_plan(draw: Draw, answer: Plan | Refusal) -> Iterator[Fault]:
    best = least_cost(draw.nodes, draw.request)
    if isinstance(answer, Refusal):
        if best is not None:
            yield Fault("R", f"refused, and a plan costs {best}: {answer.message}")
        return
    wrong = false_groups(draw.nodes, draw.request, answer.groups)
    if wrong:
        yield Fault("A", "; ".join(wrong))
        return
    if best is None:
        yield Fault("R", "planned, and the reference finds that it does not fit")
        return
    policy, costs = draw.request.policy, cost_of(draw.nodes, draw.request, answer.groups)
    if costs != best:
        sentence = f"{policy}: the plan costs {costs.by(policy)}, and the best {best.by(policy)}"
        yield Fault("F" if _former(costs, policy) <= _former(best, policy) else "W", sentence)
    elif answer.metrics.gap:
        yield Fault("E", f"{policy}: a gap of {answer.metrics.gap} on an optimal plan")
    shown, layout = layout_of(answer.groups), best_layout(draw.nodes, draw.request, answer.groups)
    if shown.shared > layout.shared:
        yield Fault("C", f"{shown.shared} spares share a node with their group, and {layout.shared} must")
    elif shown.pairs > layout.pairs:
        yield Fault("G", f"groups lie on {shown.pairs} nodes, and {layout.pairs} are enough")


def _former(costs: Cost, policy: Policy) -> tuple[int, ...]:
    return tuple(getattr(costs, name) for name in FORMER[policy])


def loss_faults(loss: Loss) -> list[Fault]:
    """Return what is wrong with the re-plan of a run."""
    try:
        answer = replan(loss.nodes, FormerPlan(loss.former), loss.request, VERSION)
    except Exception as error:  # noqa: BLE001 whatever the planner raises is a fault with a name
        return [_raised(error)]
    fewest = fewest_moves(loss)
    if isinstance(answer, Refusal):
        return [] if fewest.most is None else [Fault("R", f"refused, and {fewest.most} moves are enough")]
    may_lack = Remains(loss).spares == 0
    wrong = false_groups(loss.nodes, loss.request, answer.plan.groups, spares_may_lack=may_lack)
    if wrong:
        return [Fault("A", "; ".join(wrong))]
    return list(_of_replan(loss, fewest, answer))


def _of_replan(loss: Loss, fewest: Fewest, answer: Replanned) -> Iterator[Fault]:
    groups = answer.plan.groups
    moved = moved_of(loss, groups)
    if fewest.least is None:
        yield Fault("R", "planned, and the reference finds that it does not fit")
        return
    if len(moved) < fewest.least and fewest.beside:
        yield Fault("T", f"{len(moved)} groups move: fewer than with the untouched in place, {fewest.least}")
    if fewest.exact and fewest.most is not None and len(moved) > fewest.most:
        beside = "beside the untouched" if fewest.beside else "of all"
        yield Fault("B", f"{len(moved)} groups move, and {fewest.most} {beside} are enough")
        return
    # A group whose nodes another scope pays for now counts as a move to the planner, and none of its pods moves.
    former = {group.index: set(group.nodes) for group in loss.former}
    elsewhere = [group.index for group in groups if group.index in moved and former[group.index] != set(group.nodes)]
    if sorted(elsewhere) != sorted(answer.moved):
        yield Fault("B", f"groups {elsewhere} moved, and the answer names {list(answer.moved)}")
    after = {group.index: group for group in groups}
    for group in Remains(loss).untouched if fewest.beside else ():
        if after[group.index].nodes != tuple(sorted(group.nodes)):
            yield Fault("T", f"group {group.index} was touched without need")
    if fewest.pods is not None and pods_moved_of(loss, groups) != fewest.pods:
        yield Fault("B", f"{pods_moved_of(loss, groups)} pods move, and {fewest.pods} are enough")
    elif fewest.costs is not None and costs_after(loss, groups) != fewest.costs:
        policy, costs = loss.request.policy, costs_after(loss, groups)
        sentence = f"{policy}: the re-plan costs {costs.by(policy)}, and the best {fewest.costs.by(policy)}"
        yield Fault("F" if _former(costs, policy) <= _former(fewest.costs, policy) else "W", sentence)
