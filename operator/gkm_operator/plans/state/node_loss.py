"""On which nodes of a plan something cannot stay, and what of it stays all the same. Pure, but for the patience."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gkm.packing.values import Location, Node
from gkm.topology.eligibility import Demand, Exclusion, excluded
from gkm.topology.survey import LocatedNode, TopologySurvey

from gkm_operator.plans.state.plan_index import PlanRecord

PATIENCE_SECONDS = 30.0
"""A kubelet, or a device plugin, that restarts is back by then."""

_MOVED = "it is in another domain now"
_STAYS = frozenset({Exclusion.CORDONED, Exclusion.TAINTED})
"""What keeps new pods away, and leaves those that run."""

_SURE = frozenset({Exclusion.CORDONED, Exclusion.FLAVOR, Exclusion.SELECTOR, Exclusion.SCOPE})
"""What a person said, of the node or in the Run: no flap."""

_WORDS: Mapping[Exclusion, str] = {
    Exclusion.NO_GPUS: "it has no GPUs",
    Exclusion.FLAVOR: "it is of another flavor",
    Exclusion.SELECTOR: "the selector does not take it",
    Exclusion.SCOPE: "no scope takes it",
    Exclusion.CORDONED: "it is cordoned",
    Exclusion.NOT_READY: "it is not ready",
    Exclusion.FABRIC_UNHEALTHY: "its fabric is unhealthy",
    Exclusion.TAINTED: "it has a taint that is not tolerated",
}


class NodeProblem(NamedTuple):
    """Why new pods of a run must not come to a node. What `stays` lets those run that do; what is `sure` is no flap."""

    why: str
    stays: bool
    sure: bool


class NodeIndex:
    """A survey by name of the node."""

    def __init__(self, survey: TopologySurvey, faults: Mapping[str, str]) -> None:
        self.survey = survey
        self._located = {located.node.name: located for located in survey.located}
        self._aside = {entry.node: entry for entry in survey.quarantined}
        self._bare = frozenset(survey.bare)
        self._faults = faults

    def problem(self, name: str, place: Location, demand: Demand) -> NodeProblem | None:
        """Return what is wrong with a node of a plan that has it in this place, None where nothing is."""
        located = self._located.get(name)
        if located is None:
            if name in self._aside:
                return NodeProblem(f"it is set aside: {self._aside[name].why}", stays=True, sure=False)
            if name in self._bare:
                return NodeProblem(_WORDS[Exclusion.NO_GPUS], stays=False, sure=False)
            return NodeProblem("it is not there any more", stays=False, sure=True)
        return self._of(located, place, demand)

    def _of(self, located: LocatedNode, place: Location, demand: Demand) -> NodeProblem | None:
        wrong = excluded(located, demand)
        if wrong is not None:
            return NodeProblem(_WORDS[wrong.why], wrong.why in _STAYS, wrong.why in _SURE)
        if located.node.name in self._faults:
            return NodeProblem("what its pods take is not known", stays=True, sure=False)
        if located.location.domain != place.domain:
            return NodeProblem(_MOVED, stays=True, sure=False)
        return None


def plan_places(plan: PlanRecord) -> dict[str, Location]:
    """Return where a plan has its nodes."""
    found = {spare.node: spare.place for group in plan.groups for spare in group.spares}
    return found | {share.node: group.place for group in plan.groups for share in group.nodes}


def node_problems(plan: PlanRecord, demand: Demand, known: NodeIndex) -> dict[str, NodeProblem]:
    """Return which nodes of a plan have which trouble."""
    found = ((name, known.problem(name, place, demand)) for name, place in plan_places(plan).items())
    return {name: trouble for name, trouble in found if trouble is not None}


def lost_nodes(plan: PlanRecord, own: Mapping[str, int], found: Mapping[str, NodeProblem]) -> dict[str, str]:
    """Return the nodes that lose something of a plan: all of it, or what does not run there yet. `own` are its pods."""
    return {
        name: trouble.why
        for name, trouble in found.items()
        if not trouble.stays or own.get(name, 0) < plan.claims[name]
    }


def retained_nodes(
    plan: PlanRecord, own: Mapping[str, int], found: Mapping[str, NodeProblem], ripe: Mapping[str, NodeProblem]
) -> Iterator[Node]:
    """Yield the nodes of a plan that new groups may not use and on which something stays, with room for that alone.

    Where the trouble may pass, all that the plan has there stays; else what runs there, where the trouble lets it.
    """
    where = plan_places(plan)
    scopes: dict[str, set[str]] = {}
    for group in plan.groups:
        for node in [*(share.node for share in group.nodes), *(spare.node for spare in group.spares)]:
            scopes.setdefault(node, set()).update({group.scope} if group.scope else ())
    for name, trouble in sorted(found.items()):
        running = min(own.get(name, 0), plan.claims[name]) if trouble.stays else 0
        gpus = running if name in ripe else plan.claims[name]
        if gpus:
            yield Node(name, where[name], gpus, gpus, frozenset(scopes[name]))


class GracePeriod:
    """Since when nodes are in trouble: a passing one moves nobody. It knows what it was told since it was made."""

    def __init__(self, seconds: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        # By run, then by node: while a whole site is away, each run looks at its own nodes only.
        self._since: dict[str, dict[str, float]] = {}

    def confirmed(self, uid: str, found: Mapping[str, NodeProblem]) -> dict[str, NodeProblem]:
        """Return those troubles of a run's nodes that count by now; those that it has no more are forgotten."""
        now = self._clock()
        before = self._since.pop(uid, {})
        if not found:
            return {}
        since = self._since[uid] = {name: before.get(name, now) for name in found}
        return {name: trouble for name, trouble in found.items() if trouble.sure or now >= since[name] + self._seconds}

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        for uid in self._since.keys() - set(uids):
            del self._since[uid]

    def seconds_left(self, at_most: float) -> float:
        """Return in how many seconds the next trouble counts."""
        now = self._clock()
        waits = (since + self._seconds - now for nodes in self._since.values() for since in nodes.values())
        return min((wait for wait in waits if wait > 0), default=at_most)
