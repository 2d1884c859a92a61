"""Decide which pods of a run lose their gate now, and report about all its pods. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gkm.api.grammar import count_of
from gkm.api.meta import utc_time
from gkm.api.runs import RunPods

from gkm_operator.plans.gates.slots import Assignment, PlacedPod, PlanSlots, assign
from gkm_operator.plans.state.objects import REPLAN_ANNOTATION, FollowReason, PlanRecord, PodsReport

CHECK_SECONDS = 30.0
"""Maximum seconds between two checks of a pod without a planned node."""
Hostnames = Callable[[str], str]
"""Returns the label kubernetes.io/hostname of a node, "" if absent."""


@dataclass(frozen=True, slots=True)
class GateRules:
    """How many seconds a gated pod waits for a planned node, and whether it starts without one afterwards."""

    wait: float
    release: bool


@dataclass(frozen=True, slots=True)
class Lift:
    """A gate to remove from a pod. `hostname` is the hostname label of the pod's planned node, "" for no node."""

    pod: PlacedPod
    plan: str = ""
    node: str = ""
    hostname: str = ""


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The gates of a Run's pods to remove now, the report, and the seconds until a pod may start unplanned."""

    lifts: tuple[Lift, ...]
    report: PodsReport
    again: float | None = None


def is_followed(plan: PlanRecord, pods: Sequence[PlacedPod], now: datetime) -> bool:
    """Return whether the pods of a Run still get the nodes of its plan.

    Until it expires, and as long as a pod of the run has a node.
    """
    return not plan.expired(now) or any(pod.bound for pod in pods)


def decide(
    newest: PlanRecord | None, pods: Sequence[PlacedPod], rules: GateRules, hostnames: Hostnames, now: datetime
) -> GateDecision:
    """Return the decision about the gates of a Run's pods; `newest` is None if the Run has no valid plan."""
    plan = newest if newest is not None and is_followed(newest, pods, now) else None
    alive = [pod for pod in pods if not pod.facts.terminating]
    found = Assignment() if plan is None else assign(PlanSlots(plan.groups, plan.spec.request.gpus_per_pod), alive)
    gated = [pod for pod in alive if pod.facts.gated and not pod.facts.blocked]
    lifts = {pod.facts.uid: lift for pod in gated if (lift := _lift(pod, plan, found, hostnames)) is not None}
    left = {pod: _seconds_left(pod, rules, now) for pod in gated if pod.facts.uid not in lifts}
    released = [Lift(pod) for pod, seconds in left.items() if seconds <= 0]
    again = min((seconds for seconds in left.values() if seconds > 0), default=None)
    awaited = "the plan of the run" if newest is None else f"a node of {newest.name}"
    if expired := plan is not newest:
        awaited = f"{awaited}, which has expired (the condition Planned has the next step)"
    report = _report(plan, alive, found, awaited)
    if expired:
        report = report._replace(needs_plan=any(seconds > 0 and not pod.node for pod, seconds in left.items()))
    return GateDecision((*lifts.values(), *released), report, again)


def _lift(pod: PlacedPod, plan: PlanRecord | None, found: Assignment, hostnames: Hostnames) -> Lift | None:
    """Return the request for a pod with a place, None if absent. A node without the label is no place."""
    slot = found.given.get(pod.facts.uid) or found.held.get(pod.facts.uid)
    if plan is None or slot is None or not (hostname := hostnames(slot.node)):
        return None
    # A key of nodeSelector that exists cannot change.
    return Lift(pod, plan.name, slot.node, "" if pod.facts.hostname else hostname)


def _seconds_left(pod: PlacedPod, rules: GateRules, now: datetime) -> float:
    """Return the seconds until a pod may start without a place; no watch reports the label of a node, or this time."""
    if not rules.release:
        return CHECK_SECONDS
    created = utc_time(pod.facts.created)
    return 0.0 if created is None else min(rules.wait - (now - created).total_seconds(), CHECK_SECONDS)


def _report(plan: PlanRecord | None, pods: Sequence[PlacedPod], found: Assignment, awaited: str) -> PodsReport:
    if not pods:
        return PodsReport()
    has_node = [pod for pod in pods if pod.bound or (pod.node and not pod.facts.gated)]
    astray = sorted((pod for pod in has_node if pod.facts.uid not in found.held), key=lambda pod: pod.order)
    followed = sum(pod.bound and pod.facts.uid in found.held for pod in pods)
    tally = RunPods(followed, len(pods) - followed - len(astray), len(astray))
    if astray:
        return PodsReport(tally, FollowReason.DIVERGED, _cause(plan, astray[0]))
    # A gated pod states no cause: no scheduler has tried to bind it.
    if stuck := min((pod for pod in pods if pod.facts.unbound), key=lambda pod: pod.order, default=None):
        return PodsReport(tally, FollowReason.UNSCHEDULABLE, _stuck_cause(plan, stuck))
    if tally.waiting:
        return PodsReport(tally, FollowReason.WAITING, f"{count_of(tally.waiting, 'pod')} without a node: {awaited}")
    return PodsReport(tally, FollowReason.FOLLOWED, "every pod of the run is on the node that its plan says")


def _cause(plan: PlanRecord | None, pod: PlacedPod) -> str:
    where = f"no free place in {plan.name}" if plan is not None else "no plan"
    if pod.bound:
        return f"pod {pod.name} is on node {pod.node}, and there is {where} for it there"
    return f"pod {pod.name} can only start on node {pod.node}, and there is {where} for it there: delete the pod"


def _stuck_cause(plan: PlanRecord | None, pod: PlacedPod) -> str:
    """Return why a scheduler cannot bind a pod, and the next step.

    A pod to which GKM gave no node has node affinity that its user wrote, or was released without a plan.
    """
    cause = pod.facts.unbound.rstrip(".")
    again = f"annotate the Run with {REPLAN_ANNOTATION}=<any new value>"
    if pod.node:
        what = f"pod {pod.name} has its place on node {pod.node}, and does not start there ({cause})"
        return f"{what}. If it lasts: cordon the node, unless other pods use its GPUs; {again}, and delete the pod"
    what = f"pod {pod.name} has no gate and no node, and its scheduler finds none ({cause}). If it lasts: "
    if plan is None:
        return f"{what}remove the cause"
    return f"{what}remove the cause, or {again}, and write the nodes of the new plan into the workload"
