"""Which pod of a run gets which place of its plan, when its gate goes, and what its status reports."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from gkm.api.runs import RunPods
from gkm.packing.values import Distance, Group, Location, Share, Spare
from gkm_operator.plans.gates.decisions import GateRules, Lift, decide
from gkm_operator.plans.gates.slots import PlacedPod, PlanSlots, assign
from support.operator.gates import NOW, gated, group, plan_of

WAIT = GateRules(600.0, release=False)
RELEASE = GateRules(600.0, release=True)


def placed(pods: list[PlacedPod], *groups: Group, gpus_per_pod: int = 4) -> dict[str, str]:
    """The node of each pod by name."""
    found = assign(PlanSlots(groups, gpus_per_pod), pods)
    slots = found.held | found.given
    return {pod.name: slots[pod.facts.uid].node for pod in pods if pod.facts.uid in slots}


def test_numbers_choose_places_whatever_the_names() -> None:
    pods = [gated("z", 0), gated("y", 1), gated("x", 2), gated("w", 3)]
    assert placed(pods, group(0, "a", "b"), group(1, "c", "d")) == {"z": "a", "y": "b", "x": "c", "w": "d"}


def test_the_first_of_two_numbers_is_the_group() -> None:
    pods = [gated("j1-0", 1, 0), gated("j1-1", 1, 1), gated("j0-1", 0, 1)]
    assert placed(pods, group(0, "a", "b"), group(1, "c", "d")) == {"j1-0": "c", "j1-1": "d", "j0-1": "b"}


def test_pods_without_numbers_take_places_by_name() -> None:
    assert placed([gated("p-2"), gated("p-1")], group(0, "a", "b")) == {"p-1": "a", "p-2": "b"}


def test_a_node_has_as_many_places_as_pods_of_the_plan() -> None:
    eight = Group(0, 8, Location("", "", "", "d"), "", (Share("a", 8),))
    assert placed([gated("p", 0), gated("q", 1), gated("r", 2)], eight) == {"p": "a", "q": "a"}


def test_further_pods_take_spares_and_then_wait() -> None:
    spare = Spare("s", 4, Location("", "", "", "d"), Distance.DOMAIN)
    one = Group(0, 4, Location("", "", "", "d"), "", (Share("a", 4),), (spare,))
    assert placed([gated("p", 0), gated("q"), gated("r")], one) == {"p": "a", "q": "s"}


def test_a_pod_that_runs_keeps_its_node_when_a_later_plan_numbers_places_anew() -> None:
    pods = [gated("p0", 0, node="a", bound=True), gated("p2", 2, node="c", bound=True), gated("p1", 1)]
    assert placed(pods, group(0, "a", "c", "n")) == {"p0": "a", "p2": "c", "p1": "n"}


def test_the_successor_of_a_pod_that_is_deleted_gets_its_place() -> None:
    leaving = gated("old", 0, node="a", bound=True, terminating=True)
    assert placed([leaving, gated("new", 0)], group(0, "a", "b")) == {"new": "a"}


@pytest.mark.parametrize("seed", range(20))
def test_no_place_is_given_twice_and_no_pod_that_fits_is_left_out(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{number}" for number in range(rng.randrange(1, 40))]
    groups = [group(at, name) for at, name in enumerate(names)]
    total = rng.randrange(1, 50)
    ranks = rng.sample(range(60), total)
    pods = []
    for number in range(total):
        rank = (ranks[number],) if rng.random() < 0.7 else ()
        node = rng.choice(names) if rng.random() < 0.3 else ""
        pods.append(gated(f"p{number}", *rank, node=node, bound=bool(node)))
    found = placed(pods, *groups)
    assert max(Counter(found.values()).values()) == 1
    outside = [pod for pod in pods if pod.node and pod.name not in found]
    assert all(pod.node in found.values() for pod in outside), "a pod on a node of the plan lost a free place"
    assert len(found) == min(len(names), total - len(outside))
    numbered = [pod for pod in pods if not pod.node and pod.facts.rank and pod.facts.rank[0] < len(names)]
    taken_by_running = {pod.node for pod in pods if pod.node}
    for pod in numbered:
        own = names[pod.facts.rank[0]]
        assert own in taken_by_running or found[pod.name] == own


def test_one_request_names_the_node_by_its_label() -> None:
    pod = gated("p", 0)
    decision = decide(plan_of(group(0, "a")), [pod], WAIT, lambda node: f"host-{node}", NOW)
    assert decision.lifts == (Lift(pod, "r-1", "a", "host-a"),)


def test_another_gate_goes_first() -> None:
    assert decide(plan_of(group(0, "a")), [gated("p", 0, blocked=True)], WAIT, str, NOW).lifts == ()


def test_without_a_plan_a_pod_waits_or_starts_after_the_time_as_the_user_chose() -> None:
    young, old = gated("young", age=599), gated("old", age=601)
    assert decide(None, [young, old], WAIT, str, NOW).lifts == ()
    released = decide(None, [young, old], RELEASE, str, NOW)
    assert released.lifts == (Lift(old),)
    assert released.again == pytest.approx(1.0)


def test_a_place_on_a_node_without_the_label_is_none() -> None:
    pod = gated("p", 0, age=601)
    assert decide(plan_of(group(0, "a")), [pod], WAIT, lambda _node: "", NOW).lifts == ()
    assert decide(plan_of(group(0, "a")), [pod], RELEASE, lambda _node: "", NOW).lifts == (Lift(pod),)


def test_the_status_counts_pods_by_what_their_nodes_say_and_names_the_first_cause() -> None:
    plan = plan_of(group(0, "a", "b", "c"))
    good = gated("p0", 0, node="a", bound=True, gated_=False)
    astray = gated("p1", 1, node="z", bound=True, gated_=False)
    waiting = gated("p2", 2)
    report = decide(plan, [good, astray, waiting], WAIT, str, NOW).report
    assert report.counts == RunPods(followed=1, waiting=1, diverged=1)
    assert report.reason == "PodsDiverged"
    assert report.message == "pod p1 is on node z, and there is no free place in r-1 for it there"
    report = decide(plan, [good, waiting], WAIT, str, NOW).report
    assert report.reason == "PodsWaiting"
    report = decide(plan, [good], WAIT, str, NOW).report
    assert report.reason == "PodsWherePlanned"


def test_pods_behind_the_gate_of_an_expired_plan_learn_that_it_has_expired() -> None:
    expired = replace(plan_of(group(0, "a", "b")), expires=NOW - timedelta(seconds=1))
    decision = decide(expired, [gated("p0", 0)], WAIT, str, NOW)
    assert decision.lifts == ()
    assert decision.report.message == (
        "1 pod without a node: a node of r-1, which has expired (the condition Planned has the next step)"
    )


@pytest.mark.parametrize(
    ("pod", "left", "needs"),
    [
        (gated("p"), -1, True),
        (gated("p"), 1, False),
        (gated("p", age=601), -1, False),
        (gated("p", blocked=True), -1, False),
        (gated("p", node="z", hostname="z"), -1, False),
        (gated("p", gated_=False), -1, False),
    ],
    ids=["waits", "live", "released", "another-gate", "names-its-node", "no-gate"],
)
def test_a_pod_that_only_waits_for_a_plan_needs_another_one_when_that_has_expired(
    pod: PlacedPod, left: int, *, needs: bool
) -> None:
    plan = replace(plan_of(group(0, "a")), expires=NOW + timedelta(seconds=left))
    report = decide(plan, [pod], RELEASE, str, NOW).report
    assert report.needs_plan is needs


def test_a_pod_that_its_scheduler_cannot_bind_to_its_place_is_reported_with_the_cause_and_what_to_do() -> None:
    full = "0/6 nodes are available: 1 Insufficient nvidia.com/gpu."
    stuck = gated("p1", 1, node="b", gated_=False, hostname="b", unbound=full)
    report = decide(plan_of(group(0, "a", "b")), [gated("p0", 0), stuck], WAIT, str, NOW).report
    assert (report.counts, report.reason) == (RunPods(waiting=2), "PodsUnschedulable")
    assert report.message == (
        "pod p1 has its place on node b, and does not start there (0/6 nodes are available: 1 Insufficient "
        "nvidia.com/gpu). If it lasts: cordon the node, unless other pods use its GPUs; "
        "annotate the Run with gkm.io/plan-again=<any new value>, and delete the pod"
    )
    astray = gated("p2", 2, node="z", bound=True)
    report = decide(plan_of(group(0, "a", "b")), [stuck, astray], WAIT, str, NOW).report
    assert report.reason == "PodsDiverged"


NEW_PLAN = "annotate the Run with gkm.io/plan-again=<any new value>, and write the nodes of the new plan into"


@pytest.mark.parametrize(
    ("has_plan", "advice"),
    [(True, f"remove the cause, or {NEW_PLAN} the workload"), (False, "remove the cause")],
)
def test_a_pod_with_affinity_that_its_scheduler_cannot_bind_is_reported_with_the_cause(
    advice: str, *, has_plan: bool
) -> None:
    full = "0/6 nodes are available: 1 Insufficient nvidia.com/gpu."
    by_affinity = gated("p1", 1, gated_=False, unbound=full)
    plan = plan_of(group(0, "a", "b")) if has_plan else None
    report = decide(plan, [gated("p0", 0), by_affinity], WAIT, str, NOW).report
    assert (report.counts, report.reason) == (RunPods(waiting=2), "PodsUnschedulable")
    assert report.message == (
        "pod p1 has no gate and no node, and its scheduler finds none (0/6 nodes are available: 1 Insufficient "
        f"nvidia.com/gpu). If it lasts: {advice}"
    )


def test_a_pod_that_can_only_start_on_a_lost_node_is_reported_with_what_to_do() -> None:
    pod = gated("p0", 0, node="lost", gated_=False, hostname="lost")
    report = decide(plan_of(group(0, "a")), [pod], WAIT, str, NOW).report
    assert report.reason == "PodsDiverged"
    assert report.message.endswith("in r-1 for it there: delete the pod")
