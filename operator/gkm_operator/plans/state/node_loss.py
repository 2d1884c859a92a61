"""Find the nodes of a plan that the run has lost, and the GPUs that it keeps there.

A group stays where its pods hold GPUs. The API server knows of pods as long as Kubernetes does not delete them, and
Kubernetes waits five minutes for a node that is not ready. A node that returns before then has all its pods.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gkm.packing.values import Location, Node
from gkm.topology.eligibility import Exclusion, NodeDemand, excluded
from gkm.topology.survey import LocatedNode, TopologySurvey

from gkm_operator.plans.state.objects import PlanRecord

GRACE_SECONDS = 30.0
"""Seconds that a node problem must last before it is acted on: a kubelet that restarts is ready again sooner."""

REQUESTED = frozenset({Exclusion.FLAVOR, Exclusion.SELECTOR, Exclusion.SCOPE})
"""Reasons of exclusion that follow from the run's request; if the Run changed, its author wants its pods elsewhere."""

_PERMANENT = REQUESTED | {Exclusion.CORDONED}
"""Reasons of exclusion that a person set, so that they do not flap."""

_MESSAGES: Mapping[Exclusion, str] = {
    Exclusion.NO_GPUS: "it has no GPUs",
    Exclusion.FLAVOR: "it has another flavor",
    Exclusion.SELECTOR: "the selector does not match it",
    Exclusion.SCOPE: "no scope matches it",
    Exclusion.CORDONED: "it is cordoned",
    Exclusion.NOT_READY: "it is not ready",
    Exclusion.FABRIC_UNHEALTHY: "its fabric is unhealthy",
    Exclusion.TAINTED: "it has a taint that is not tolerated",
}


class NodeProblem(NamedTuple):
    """Why new pods of a Run must not use a node.

    With `pods_stay`, pods that are there keep their GPUs. A `permanent` problem counts at once, others after the grace
    period.
    """

    message: str
    pods_stay: bool
    permanent: bool


class NodeIndex:
    """Finds nodes of a topology survey by name; `faults` are causes by node, of nodes with a pod of unknown GPUs."""

    def __init__(self, survey: TopologySurvey, faults: Mapping[str, str]) -> None:
        self.survey = survey
        self._located = {located.node.name: located for located in survey.located}
        self._quarantined = {entry.node: entry for entry in survey.quarantined}
        self._bare = frozenset(survey.bare)
        self._faults = faults

    def existing(self, gpus: Mapping[str, int]) -> Mapping[str, int]:
        """Return `gpus`, a number of GPUs by node, without nodes that do not exist."""
        if gpus.keys() <= self._located.keys():
            return gpus
        names = self._located.keys() | self._quarantined.keys() | self._bare
        return {name: count for name, count in gpus.items() if name in names}

    def located(self, name: str) -> LocatedNode | None:
        """Return a located node by its name, None if the survey has no such located node."""
        return self._located.get(name)

    def problem(
        self, name: str, location: Location, demand: NodeDemand, *, changed: bool = False
    ) -> NodeProblem | None:
        """Return why a Run can no longer use a node of its plan at this location, None if it can.

        `changed` says that the demand differs from the demand of the plan.
        """
        located = self._located.get(name)
        if located is None:
            if name in self._quarantined:
                return NodeProblem(f"it is set aside: {self._quarantined[name].why}", pods_stay=True, permanent=False)
            if name in self._bare:
                return NodeProblem(_MESSAGES[Exclusion.NO_GPUS], pods_stay=True, permanent=False)
            return NodeProblem("it does not exist any more", pods_stay=False, permanent=True)
        wrong = excluded(located, demand)
        if wrong is not None:
            pods_stay = not (changed and wrong.why in REQUESTED)
            return NodeProblem(_MESSAGES[wrong.why], pods_stay, wrong.why in _PERMANENT)
        return self._located_problem(located, location)

    def _located_problem(self, located: LocatedNode, location: Location) -> NodeProblem | None:
        if located.node.name in self._faults:
            return NodeProblem("the GPUs that its pods use are unknown", pods_stay=True, permanent=False)
        if located.location.key != location.key:
            return NodeProblem("it is in another domain now", pods_stay=True, permanent=False)
        return None


def plan_locations(plan: PlanRecord) -> dict[str, Location]:
    """Return the location in the topology of every node of a plan, spares included."""
    found = {spare.node: spare.place for group in plan.groups for spare in group.spares}
    return found | {share.node: group.place for group in plan.groups for share in group.nodes}


def node_problems(
    plan: PlanRecord, demand: NodeDemand, index: NodeIndex, *, changed: bool = False
) -> dict[str, NodeProblem]:
    """Return the problems of a plan's nodes, by node; `changed`: the request differs from the plan's request."""
    locations = plan_locations(plan).items()
    found = ((name, index.problem(name, location, demand, changed=changed)) for name, location in locations)
    return {name: problem for name, problem in found if problem is not None}


def lost_nodes(plan: PlanRecord, held: Mapping[str, int], found: Mapping[str, NodeProblem]) -> dict[str, str]:
    """Return the nodes on which a plan of a Run loses GPUs, with the reasons.

    `held` are the GPUs that pods of the run hold, by node.
    """
    return {
        name: problem.message
        for name, problem in found.items()
        if not problem.pods_stay or held.get(name, 0) < plan.claims[name]
    }


def retained_nodes(
    plan: PlanRecord, held: Mapping[str, int], found: Mapping[str, NodeProblem], confirmed: Mapping[str, NodeProblem]
) -> Iterator[Node]:
    """Yield nodes of a plan that take no new groups, with the GPUs that the plan keeps there.

    While a problem may pass, the plan retains all its GPUs of the node. Once it is confirmed, it retains those that
    pods hold, if these pods stay.
    """
    locations = plan_locations(plan)
    scopes: dict[str, set[str]] = {}
    for group in plan.groups:
        for node in [*(share.node for share in group.nodes), *(spare.node for spare in group.spares)]:
            scopes.setdefault(node, set()).update({group.scope} if group.scope else ())
    for name, problem in sorted(found.items()):
        staying = min(held.get(name, 0), plan.claims[name]) if problem.pods_stay else 0
        gpus = staying if name in confirmed else plan.claims[name]
        if gpus:
            yield Node(name, locations[name], gpus, gpus, frozenset(scopes[name]))


class GracePeriod:
    """Remembers since when each node problem of a Run exists; a problem that is shorter than `seconds` moves no Run.

    In memory only.
    """

    def __init__(self, seconds: float = GRACE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        # By run, then by node: while many nodes are down, each run costs its own nodes only.
        self._since: dict[str, dict[str, float]] = {}

    def confirmed(self, uid: str, found: Mapping[str, NodeProblem]) -> dict[str, NodeProblem]:
        """Return a Run's node problems that are permanent or have outlasted the grace period.

        Forget solved problems.
        """
        now = self.clock()
        before = self._since.pop(uid, {})
        if not found:
            return {}
        since = self._since[uid] = {name: before.get(name, now) for name in found}
        expired = {name for name, start in since.items() if now >= start + self.seconds}
        return {name: problem for name, problem in found.items() if problem.permanent or name in expired}

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all Runs whose uid is not among `uids`."""
        for uid in self._since.keys() - set(uids):
            del self._since[uid]

    def seconds_remaining(self, at_most: float) -> float:
        """Return the seconds until the next grace period ends, `at_most` if no grace period runs."""
        now = self.clock()
        waits = (since + self.seconds - now for nodes in self._since.values() for since in nodes.values())
        return min((wait for wait in waits if wait > 0), default=at_most)
