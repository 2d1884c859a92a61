"""Decide which nodes a run may use; every other node gets the first reason that excludes it. Pure.

A node also needs CPUs, memory and slots for pods. A run that names no requests gets a check that finds nodes which
others have used up: one GPU's share of the node must be free. That is what is allocatable, divided by the GPUs and one:
the one more is for pods without GPUs.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from gkm.api.runs import RunScope, RunSelector, Toleration
from gkm.topology.labels import flavor
from gkm.topology.nodes import DEFAULT_TOLERATIONS, Node, Resources, thousandths, untolerated
from gkm.topology.pods import NodeLoad
from gkm.topology.survey import LocatedNode


@dataclass(frozen=True, slots=True)
class PodDemand:
    """One pod of a run: its GPUs, and requests in thousandths of CPUs and of bytes; None if absent."""

    gpus: int = 1
    cpu: int | None = None
    memory: int | None = None


def load_of(pod: PodDemand, gpus: int) -> NodeLoad:
    """Return the load of a run's pods that use so many GPUs of a node; unstated requests are 0."""
    pods = -(-gpus // pod.gpus)
    return NodeLoad((pod.cpu or 0) * pods, (pod.memory or 0) * pods, pods)


_UNHEALTHY = "unhealthy"
_NO_SCOPES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """Which nodes a run may use. If it has scopes, a node must be in at least one."""

    flavor: str
    selector: RunSelector = field(default_factory=RunSelector)
    scopes: tuple[RunScope, ...] = ()
    tolerations: tuple[Toleration, ...] = DEFAULT_TOLERATIONS
    pod: PodDemand = field(default_factory=PodDemand)

    def __post_init__(self) -> None:
        if repeated := [name for name, count in Counter(scope.name for scope in self.scopes).items() if count > 1]:
            raise ValueError(f"several scopes have the name {min(repeated)!r}")

    def scopes_of(self, located: LocatedNode) -> frozenset[str]:
        """Return the names of the scopes that contain a node."""
        if not self.scopes:
            return _NO_SCOPES
        return frozenset(scope.name for scope in self.scopes if _selects(scope.selector, located))


def _selects(selector: RunSelector, located: LocatedNode) -> bool:
    location = located.location
    if selector.region not in ("", location.region) or selector.cluster not in ("", location.cluster):
        return False
    if not selector.labels:
        return True
    labels = located.node.labels
    return all(labels.get(key) == value for key, value in selector.labels.items())


class Exclusion(StrEnum):
    """Why a run must not use a node; if several reasons apply, the first in this order is reported."""

    NO_GPUS = "NoGPUs"
    FLAVOR = "OtherFlavor"
    SELECTOR = "NotSelected"
    SCOPE = "OutsideScopes"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    FABRIC_UNHEALTHY = "FabricUnhealthy"
    TAINTED = "Tainted"
    INSUFFICIENT_CPU = "InsufficientCPU"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    TOO_MANY_PODS = "TooManyPods"


@dataclass(frozen=True, slots=True)
class Excluded:
    """Why a run must not use a node, in the order in which the reasons are examined; the first one is reported."""

    node: str
    why: Exclusion
    detail: str = ""


def excluded(located: LocatedNode, demand: NodeDemand) -> Excluded | None:
    """Return why a run must not use a node, None if it may use it."""
    why = _why(located, demand)
    return None if why is None else Excluded(located.node.name, why, _detail(why, located, demand))


LACKING = frozenset({Exclusion.INSUFFICIENT_CPU, Exclusion.INSUFFICIENT_MEMORY, Exclusion.TOO_MANY_PODS})
"""The reasons that mean that a pod of the run could not start on the node now."""


def startable_pods(located: LocatedNode, load: NodeLoad, pod: PodDemand) -> int | Excluded:
    """Return how many more pods of a run can start on a node, or why not even one can.

    A resource that the node does not report is 0 for a pod that requests it, as for the scheduler.
    """
    name, allocatable, most = located.node.name, located.node.status.allocatable or Resources(), located.gpus
    slot = 0 if allocatable.pods is None else 1000
    for why, of, unit, quantity, taken, requested in (
        (Exclusion.INSUFFICIENT_CPU, "CPUs", 1000, allocatable.cpu, load.cpu, pod.cpu),
        (Exclusion.INSUFFICIENT_MEMORY, "GiB of memory", 1000 << 30, allocatable.memory, load.memory, pod.memory),
        (Exclusion.TOO_MANY_PODS, "slots for pods", 1000, allocatable.pods, 1000 * load.pods, slot),
    ):
        try:
            total = 0 if quantity is None else thousandths(quantity, of)
        except ValueError as error:
            return Excluded(name, why, f"what is allocatable cannot be read: {error}")
        free = max(0, total - taken)
        needed = total // (located.gpus + 1) if requested is None else requested
        if free < needed:
            shown = [f"{number / unit:.4g}" for number in (free, total, needed)]
            return Excluded(name, why, f"{shown[0]} of {shown[1]} {of} are free, and a pod needs {shown[2]}")
        if requested:
            most = min(most, free // requested)
    return most


def _why(located: LocatedNode, demand: NodeDemand) -> Exclusion | None:
    node = located.node
    if not located.gpus:
        return Exclusion.NO_GPUS
    if located.flavor != flavor(demand.flavor):
        return Exclusion.FLAVOR
    if not _selects(demand.selector, located):
        return Exclusion.SELECTOR
    if demand.scopes and not demand.scopes_of(located):
        return Exclusion.SCOPE
    return unusable(node, located.health, demand.tolerations)


def unusable(node: Node, health: str, tolerations: Iterable[Toleration] = DEFAULT_TOLERATIONS) -> Exclusion | None:
    """Return why no new pod can use a node with this fabric health, None if new pods can."""
    if node.spec.unschedulable:
        return Exclusion.CORDONED
    if not node.ready:
        return Exclusion.NOT_READY
    if health == _UNHEALTHY:
        return Exclusion.FABRIC_UNHEALTHY
    return None if untolerated(node.taints, tolerations) is None else Exclusion.TAINTED


def _detail(why: Exclusion, located: LocatedNode, demand: NodeDemand) -> str:
    if why is Exclusion.FLAVOR:
        return located.flavor
    return str(untolerated(located.node.taints, demand.tolerations)) if why is Exclusion.TAINTED else ""
