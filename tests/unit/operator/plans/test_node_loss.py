"""The nodes that a plan loses, the GPUs that it retains there, and problems that pass."""

from typing import Any

import msgspec
import pytest
from gkm.api.topology_settings import Topology
from gkm.packing.values import Node
from gkm.topology.eligibility import NodeDemand
from gkm.topology.nodes import Node as TopologyNode
from gkm.topology.survey import survey_nodes
from gkm_operator.plans.state.node_loss import (
    GracePeriod,
    NodeIndex,
    NodeProblem,
    lost_nodes,
    node_problems,
    retained_nodes,
)
from gkm_operator.plans.state.snapshot import double_allocations
from support.operator.plans import gpu_node
from support.operator.plans_made import a_plan, a_run, fleet

DEMAND = NodeDemand("h100")
PERMANENT = NodeProblem("gone", pods_stay=False, permanent=True)
PASSING = NodeProblem("it is not ready", pods_stay=True, permanent=False)


def node_index(*nodes: dict[str, Any]) -> NodeIndex:
    """The nodes of the plan, some of them otherwise."""
    changed = {node["metadata"]["name"]: node for node in nodes}
    whole = [changed.get(node["metadata"]["name"], node) for node in fleet()]
    read = [msgspec.convert(node, TopologyNode) for node in whole if node]
    return NodeIndex(survey_nodes(read, Topology()), {})


def cordoned(name: str) -> dict[str, Any]:
    return gpu_node(name, name[:2]) | {"spec": {"unschedulable": True}}


def tainted(name: str) -> dict[str, Any]:
    return gpu_node(name, name[:2]) | {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}


def test_healthy_nodes_have_no_problem() -> None:
    assert node_problems(a_plan(), DEMAND, node_index()) == {}


@pytest.mark.parametrize(
    ("node", "message", "pods_stay", "permanent"),
    [
        (cordoned("d0-n0"), "it is cordoned", True, True),
        (tainted("d0-n0"), "it has a taint that is not tolerated", True, False),
        (gpu_node("d0-n0", "d0", ready="False"), "it is not ready", True, False),
        (gpu_node("d0-n0", "d0", ready="Unknown"), "it is not ready", True, False),
        (gpu_node("d0-n0", "d0", 0), "it has no GPUs", True, False),
        (gpu_node("d0-n0", "d0", gpu__flavor="gb200"), "it has another flavor", True, True),
        (gpu_node("d0-n0", "d1"), "it is in another domain now", True, False),
        (gpu_node("d0-n0", "d0", cluster="other"), "it is in another domain now", True, False),
        (gpu_node("d0-n0", "d0", block="b-other"), "it is set aside: DomainInSeveralBlocks", True, False),
        (
            gpu_node("d0-n0", "d0") | {"metadata": gpu_node("d0-n0", "d0")["metadata"]},
            "",
            False,
            False,
        ),
    ],
)
def test_each_node_problem_has_its_message(
    node: dict[str, Any],
    message: str,
    pods_stay: bool,  # noqa: FBT001 -- a parameter
    permanent: bool,  # noqa: FBT001 -- a parameter
) -> None:
    found = node_problems(a_plan(), DEMAND, node_index(node))
    assert found.get("d0-n0") == (NodeProblem(message, pods_stay, permanent) if message else None)


def test_pods_leave_a_node_that_a_changed_request_excludes() -> None:
    other = node_index(gpu_node("d0-n0", "d0", gpu__flavor="gb200"))
    excluded = NodeProblem("it has another flavor", pods_stay=False, permanent=True)
    assert node_problems(a_plan(), DEMAND, other, changed=True) == {"d0-n0": excluded}
    unready = node_problems(a_plan(), DEMAND, node_index(gpu_node("d0-n0", "d0", ready="False")), changed=True)
    assert unready == {"d0-n0": PASSING}


def test_a_deleted_node_is_a_permanent_problem() -> None:
    whole = [msgspec.convert(node, TopologyNode) for node in fleet()[1:]]
    found = node_problems(a_plan(), DEMAND, NodeIndex(survey_nodes(whole, Topology()), {}))
    assert found == {"d0-n0": NodeProblem("it does not exist any more", pods_stay=False, permanent=True)}


def test_a_node_with_unknown_free_gpus_retains_running_pods() -> None:
    whole = [msgspec.convert(node, TopologyNode) for node in fleet()]
    found = node_problems(a_plan(), DEMAND, NodeIndex(survey_nodes(whole, Topology()), {"d0-n0": "a pod"}))
    assert found == {"d0-n0": NodeProblem("the GPUs that its pods use are unknown", pods_stay=True, permanent=False)}


@pytest.mark.parametrize(("own", "is_lost", "kept"), [(0, True, 0), (4, True, 4), (8, False, 8), (9, False, 8)])
def test_a_cordoned_node_retains_the_gpus_of_running_pods_only(own: int, is_lost: bool, kept: int) -> None:  # noqa: FBT001 -- parameters
    plan = a_plan()
    found = {"d0-n0": NodeProblem("it is cordoned", pods_stay=True, permanent=True)}
    assert bool(lost_nodes(plan, {"d0-n0": own}, found)) == is_lost
    place = plan.groups[0].place
    wanted = [Node("d0-n0", place, kept, kept)] if kept else []
    assert list(retained_nodes(plan, {"d0-n0": own}, found, found)) == wanted


def test_an_unconfirmed_problem_retains_all_gpus_of_the_plan() -> None:
    plan = a_plan()
    stays = list(retained_nodes(plan, {}, {"d0-n0": PASSING}, {}))
    assert [(node.name, node.free) for node in stays] == [("d0-n0", 8)]


def test_a_deleted_node_retains_nothing_even_with_pods() -> None:
    assert list(retained_nodes(a_plan(), {"d0-n0": 8}, {"d0-n0": PERMANENT}, {"d0-n0": PERMANENT})) == []


def test_a_problem_is_confirmed_after_the_grace_period_and_a_permanent_one_at_once() -> None:
    now = 0.0
    grace = GracePeriod(30.0, lambda: now)
    found = {"a": PASSING, "b": PERMANENT}
    assert grace.confirmed("r", found) == {"b": PERMANENT}
    now = 29.0
    assert grace.confirmed("r", found) == {"b": PERMANENT}
    assert grace.seconds_remaining(99.0) == 1.0
    now = 30.0
    assert grace.confirmed("r", found) == found
    assert grace.seconds_remaining(99.0) == 99.0


def test_a_node_that_recovers_starts_a_new_grace_period() -> None:
    now = 0.0
    grace = GracePeriod(30.0, lambda: now)
    grace.confirmed("r", {"a": PASSING})
    now = 20.0
    grace.confirmed("r", {})
    grace.confirmed("r", {"a": PASSING})
    now = 40.0
    assert grace.confirmed("r", {"a": PASSING}) == {}
    now = 50.0
    assert grace.confirmed("r", {"a": PASSING}) == {"a": PASSING}


def test_deleted_runs_are_forgotten() -> None:
    grace = GracePeriod(30.0, lambda: 0.0)
    grace.confirmed("r", {"a": PASSING})
    grace.retain_only({"s"})
    assert grace.seconds_remaining(99.0) == 99.0


TOTALS = {f"d{domain}-n{number}": 8 for domain in range(2) for number in range(2)}


def test_of_two_plans_with_the_same_gpus_priority_then_age_decides() -> None:
    first, second = a_plan(one=a_run("a"), created="1"), a_plan(one=a_run("b"), created="2")
    assert list(double_allocations({first.run: (first, 0), second.run: (second, 0)}, TOTALS)) == [second.run]
    assert list(double_allocations({first.run: (first, 0), second.run: (second, 1)}, TOTALS)) == [first.run]


def test_gpus_that_pods_hold_belong_to_their_run_whatever_the_priorities() -> None:
    first, second = a_plan(one=a_run("a"), created="1"), a_plan(one=a_run("b"), created="2")
    live = {first.run: (first, 9), second.run: (second, 0)}
    assert list(double_allocations(live, TOTALS, lambda run: {"d0-n0": 8} if run == second.run else {})) == [first.run]
    one_each = {first.run: {"d0-n0": 8}, second.run: {"d1-n0": 8}}
    assert list(double_allocations(live, TOTALS, lambda run: one_each[run])) == [first.run, second.run]


@pytest.mark.parametrize("held", [0, 4, 8])
def test_a_single_plan_has_no_conflict_even_on_shrunken_nodes(held: int) -> None:
    plan = a_plan()
    pods = {"d0-n0": held} if held else {}
    assert double_allocations({plan.run: (plan, 0)}, dict.fromkeys(TOTALS, 4), lambda _run: pods) == {}
