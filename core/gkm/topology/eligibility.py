"""Decide which nodes a run may use; every other node gets the first reason that excludes it. Pure.

A node also needs CPUs, memory and slots for pods. A run that names no requests gets a check that finds nodes which
others have used up: one GPU's share of the node must be free. That is what is allocatable, divided by the GPUs and one:
the one more is for pods without GPUs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gkm.topology.labels import flavor
from gkm.topology.nodes import DEFAULT_TOLERATIONS, Node, Resources, Toleration, thousandths, untolerated
from gkm.topology.pods import NodeLoad
from gkm.topology.survey import LocatedNode

_ONE = 1000
"""A pod takes one slot."""


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


class Lacking(StrEnum):
    """The resource of which a node has too little: CPU, memory or pods."""

    CPU = "CPUs"
    MEMORY = "GiB of memory"
    PODS = "slots for pods"


class Shortage(NamedTuple):
    """The resource that is too scarce on a node for another pod of a run; numbers are in thousandths."""

    of: Lacking
    free: int
    total: int
    needed: int

    @property
    def message(self) -> str:
        """Return a text with the free, the total and the needed amount."""
        free, total, needed = (f"{number / _UNITS[self.of]:.4g}" for number in (self.free, self.total, self.needed))
        return f"{free} of {total} {self.of.value} are free, and a pod needs {needed}"


_UNITS = {Lacking.CPU: 1000, Lacking.MEMORY: 1000 << 30, Lacking.PODS: 1000}


def pods_that_fit(allocatable: Resources, gpus: int, load: NodeLoad, pod: PodDemand) -> int | Shortage:
    """Return how many more pods of a run fit on a node with these GPUs, or the resource that is too scarce.

    A resource that the node does not report is 0 for a pod that requests it, as for the scheduler.

    Raises:
        ValueError: a quantity of the node is invalid.
    """
    most = gpus
    for of, quantity, taken, requested in (
        (Lacking.CPU, allocatable.cpu, load.cpu, pod.cpu),
        (Lacking.MEMORY, allocatable.memory, load.memory, pod.memory),
        (Lacking.PODS, allocatable.pods, 1000 * load.pods, _ONE if allocatable.pods is not None else 0),
    ):
        total = 0 if quantity is None else thousandths(quantity, of.value)
        free = max(0, total - taken)
        needed = total // (gpus + 1) if requested is None else requested
        if free < needed:
            return Shortage(of, free, total, needed)
        if requested:
            most = min(most, free // requested)
    return most


_UNHEALTHY = "unhealthy"
_NO_SCOPES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Selector:
    """A selection of nodes by region, cluster and labels. An empty field selects every node."""

    region: str = ""
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, located: LocatedNode) -> bool:
        """Return whether the selector selects a node."""
        location = located.location
        if self.region not in ("", location.region) or self.cluster not in ("", location.cluster):
            return False
        if not self.labels:
            return True
        labels = located.node.labels
        return all(labels.get(key) == value for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes of one scope of a run, and the scope's name."""

    name: str
    selector: Selector


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """Which nodes a run may use. If it has scopes, a node must be in at least one."""

    flavor: str
    selector: Selector = field(default_factory=Selector)
    scopes: tuple[Scope, ...] = ()
    tolerations: tuple[Toleration, ...] = DEFAULT_TOLERATIONS
    pod: PodDemand = field(default_factory=PodDemand)

    def __post_init__(self) -> None:
        """Check that the names of scopes differ.

        Raises:
            ValueError: two scopes have one name.
        """
        if repeated := [name for name, count in Counter(scope.name for scope in self.scopes).items() if count > 1]:
            raise ValueError(f"several scopes have the name {min(repeated)!r}")

    def scopes_of(self, located: LocatedNode) -> frozenset[str]:
        """Return the names of the scopes that contain a node."""
        if not self.scopes:
            return _NO_SCOPES
        return frozenset(scope.name for scope in self.scopes if scope.selector.matches(located))


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


_LACKING = {
    Lacking.CPU: Exclusion.INSUFFICIENT_CPU,
    Lacking.MEMORY: Exclusion.INSUFFICIENT_MEMORY,
    Lacking.PODS: Exclusion.TOO_MANY_PODS,
}

LACKING = frozenset(_LACKING.values())
"""The reasons that mean that a pod of the run could not start on the node now."""


def startable_pods(located: LocatedNode, load: NodeLoad, pod: PodDemand) -> int | Excluded:
    """Return how many more pods of a run can start on a node, or why not even one can."""
    try:
        found = pods_that_fit(located.node.status.allocatable or Resources(), located.gpus, load, pod)
    except ValueError as error:
        return Excluded(located.node.name, Exclusion.INSUFFICIENT_CPU, f"what is allocatable cannot be read: {error}")
    return found if isinstance(found, int) else Excluded(located.node.name, _LACKING[found.of], found.message)


def _why(located: LocatedNode, demand: NodeDemand) -> Exclusion | None:
    node = located.node
    if not located.gpus:
        return Exclusion.NO_GPUS
    if located.flavor != flavor(demand.flavor):
        return Exclusion.FLAVOR
    if not demand.selector.matches(located):
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
