"""Handle drift: pods of a run use GPUs that its plan does not name. Pure but for DriftTracker.

A pod stays on its node until it ends, so the plan follows the pods and not the reverse (docs/design/plans.md, Drift).
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from gkm.api.grammar import count_of
from gkm.packing.values import Group, Location, Node, Request
from gkm.topology.eligibility import NodeDemand, excluded

from gkm_operator.plans.state.free_capacity import excess
from gkm_operator.plans.state.node_loss import REQUESTED, GracePeriod, NodeIndex, NodeProblem, plan_locations
from gkm_operator.plans.state.objects import PlanRecord, claims_of


class DriftReason(StrEnum):
    """Reasons of the condition Drift of a Run (docs/reference/reasons.md)."""

    OUTSIDE = "PodsOutsidePlan"
    FOLLOWED = "PodsFollowPlan"


RETRY_SECONDS = 60.0
"""Seconds after which a plan that could not follow its pods is tried again; labels of nodes may have changed."""
_MAX_NAMED_NODES = 3
_DRIFT = NodeProblem("pods hold GPUs of it that the plan does not name", pods_stay=True, permanent=False)


def drift_message(plan: str, drift: Mapping[str, int]) -> str:
    """Return a sentence about GPUs that pods use outside of a plan, with a few of the nodes."""
    named = ", ".join(f"{drift[node]} of node {node}" for node in sorted(drift)[:_MAX_NAMED_NODES])
    more = f" and others of {len(drift) - _MAX_NAMED_NODES} more" if len(drift) > _MAX_NAMED_NODES else ""
    return f"pods of the run hold {count_of(sum(drift.values()), 'GPU')} that {plan} does not name: {named}{more}"


def followed(
    plans: Sequence[PlanRecord], held: Mapping[str, int], demand: NodeDemand, index: NodeIndex, request: Request
) -> PlanRecord:
    """Return the Run's current plan with its groups moved to where pods run; `plans` are its plans, sorted by number.

    Nodes that the run excludes by its request are followed only if the current plan has them already.
    """
    # numpy is loaded with the first run.
    from gkm.packing.replanning.following import following  # noqa: PLC0415

    current = plans[-1]
    allowed = {node: gpus for node, gpus in held.items() if node in current.claims or _is_wanted(node, demand, index)}
    nodes = tuple(_located(allowed, plan_locations(current), demand, index))
    newest_first = [plan.groups for plan in reversed(plans)]
    groups = following(request, newest_first, allowed, nodes)
    return replace(current, groups=groups, claims=claims_of(groups))


def is_closer(groups: Sequence[Group], current: PlanRecord, held: Mapping[str, int]) -> bool:
    """Return whether a Run's pods use fewer GPUs outside of these groups than outside of its current plan."""
    after, before = excess(held, claims_of(groups)), excess(held, current.claims)
    return sum(after.values()) < sum(before.values())


def _is_wanted(name: str, demand: NodeDemand, index: NodeIndex) -> bool:
    """Return whether the request of a run admits a node. Its pods keep GPUs of a node that is only not ready."""
    located = index.located(name)
    wrong = None if located is None else excluded(located, demand)
    return wrong is None or wrong.why not in REQUESTED


def _located(
    held: Mapping[str, int], planned: Mapping[str, Location], demand: NodeDemand, index: NodeIndex
) -> Iterator[Node]:
    for name, gpus in held.items():
        located = index.located(name)
        if located is None:
            continue
        # A group of the plan stays at the place that the plan has for it.
        place = planned.get(name, located.location)
        free = min(gpus, located.gpus)
        yield Node(name, place, located.gpus, free, demand.scopes_of(located), located.rack)


class DriftTracker:
    """Remembers drifts that outlast the grace period, and drifts that no plan can follow. In memory only."""

    def __init__(self, grace: GracePeriod) -> None:
        self.grace = GracePeriod(grace.seconds, grace.clock)
        self._clock = grace.clock
        self._hopeless: dict[str, tuple[Hashable, float]] = {}

    def due(self, uid: str, plan: PlanRecord, held: Mapping[str, int], drift: Mapping[str, int]) -> str:
        """Return why the plan of a Run should follow its pods now, "" if it should not."""
        if not self.grace.confirmed(uid, dict.fromkeys(drift, _DRIFT)):
            return ""
        key, until = self._hopeless.get(uid, (None, 0.0))
        is_hopeless = key == _key(plan, held) and self._clock() < until
        return "" if is_hopeless else drift_message(plan.name, drift)

    def give_up(self, uid: str, plan: PlanRecord, held: Mapping[str, int]) -> None:
        """Record that no plan can be closer to a Run's pods than the current one."""
        self._hopeless[uid] = _key(plan, held), self._clock() + RETRY_SECONDS

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all Runs whose uid is not among `uids`."""
        self.grace.retain_only(uids)
        for uid in self._hopeless.keys() - set(uids):
            del self._hopeless[uid]


def _key(plan: PlanRecord, held: Mapping[str, int]) -> Hashable:
    return plan.name, frozenset(held.items())
