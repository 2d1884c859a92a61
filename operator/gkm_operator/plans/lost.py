"""On which nodes of a plan something cannot stay, and what of it stays all the same. Pure, but for the patience."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from gkm.packing.values import Node, Place
from gkm.topology.eligibility import Demand, Exclusion, excluded
from gkm.topology.survey import Located, Survey

from gkm_operator.plans.book import Made

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


class Trouble(NamedTuple):
    """Why new pods of a run must not come to a node. What `stays` lets those run that do; what is `sure` is no flap."""

    why: str
    stays: bool
    sure: bool


class Map:
    """A survey by name of the node."""

    def __init__(self, survey: Survey, faults: Mapping[str, str]) -> None:
        self.survey = survey
        self._located = {located.node.name: located for located in survey.located}
        self._aside = {entry.node: entry for entry in survey.quarantined}
        self._bare = frozenset(survey.bare)
        self._faults = faults

    def trouble(self, name: str, place: Place, demand: Demand) -> Trouble | None:
        """Return what is wrong with a node of a plan that has it in this place, None where nothing is."""
        located = self._located.get(name)
        if located is None:
            if name in self._aside:
                return Trouble(f"it is set aside: {self._aside[name].why}", stays=True, sure=False)
            if name in self._bare:
                return Trouble(_WORDS[Exclusion.NO_GPUS], stays=False, sure=False)
            return Trouble("it is not there any more", stays=False, sure=True)
        return self._of(located, place, demand)

    def _of(self, located: Located, place: Place, demand: Demand) -> Trouble | None:
        wrong = excluded(located, demand)
        if wrong is not None:
            return Trouble(_WORDS[wrong.why], wrong.why in _STAYS, wrong.why in _SURE)
        if located.node.name in self._faults:
            return Trouble("what its pods take is not known", stays=True, sure=False)
        if located.place.domain != place.domain:
            return Trouble(_MOVED, stays=True, sure=False)
        return None


def places(plan: Made) -> dict[str, Place]:
    """Return where a plan has its nodes."""
    found = {spare.node: spare.place for group in plan.groups for spare in group.spares}
    return found | {share.node: group.place for group in plan.groups for share in group.nodes}


def troubles(plan: Made, demand: Demand, known: Map) -> dict[str, Trouble]:
    """Return which nodes of a plan have which trouble."""
    found = ((name, known.trouble(name, place, demand)) for name, place in places(plan).items())
    return {name: trouble for name, trouble in found if trouble is not None}


def lost(plan: Made, own: Mapping[str, int], found: Mapping[str, Trouble]) -> dict[str, str]:
    """Return the nodes that lose something of a plan: all of it, or what does not run there yet. `own` are its pods."""
    return {
        name: trouble.why
        for name, trouble in found.items()
        if not trouble.stays or own.get(name, 0) < plan.claims[name]
    }


def staying(
    plan: Made, own: Mapping[str, int], found: Mapping[str, Trouble], ripe: Mapping[str, Trouble]
) -> Iterator[Node]:
    """Yield the nodes of a plan that new groups may not use and on which something stays, with room for that alone.

    Where the trouble may pass, all that the plan has there stays; else what runs there, where the trouble lets it.
    """
    where = places(plan)
    scopes: dict[str, set[str]] = {}
    for group in plan.groups:
        for node in [*(share.node for share in group.nodes), *(spare.node for spare in group.spares)]:
            scopes.setdefault(node, set()).update({group.scope} if group.scope else ())
    for name, trouble in sorted(found.items()):
        running = min(own.get(name, 0), plan.claims[name]) if trouble.stays else 0
        gpus = running if name in ripe else plan.claims[name]
        if gpus:
            yield Node(name, where[name], gpus, gpus, frozenset(scopes[name]))


class Patience:
    """Since when nodes are in trouble: a passing one moves nobody. It knows what it was told since it was made."""

    def __init__(self, seconds: float = PATIENCE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        # By run, then by node: while a whole site is away, each run looks at its own nodes only.
        self._since: dict[str, dict[str, float]] = {}

    def ripe(self, uid: str, found: Mapping[str, Trouble]) -> dict[str, Trouble]:
        """Return those troubles of a run's nodes that count by now; those that it has no more are forgotten."""
        now = self._clock()
        before = self._since.pop(uid, {})
        if not found:
            return {}
        since = self._since[uid] = {name: before.get(name, now) for name in found}
        return {name: trouble for name, trouble in found.items() if trouble.sure or now >= since[name] + self._seconds}

    def keep(self, uids: Collection[str]) -> None:
        """Forget runs that are not there any more."""
        for uid in self._since.keys() - set(uids):
            del self._since[uid]

    def left(self, at_most: float) -> float:
        """Return in how many seconds the next trouble counts."""
        now = self._clock()
        waits = (since + self._seconds - now for nodes in self._since.values() for since in nodes.values())
        return min((wait for wait in waits if wait > 0), default=at_most)
