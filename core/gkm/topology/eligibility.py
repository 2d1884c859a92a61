"""Which nodes a run may use at all, and of every other one the first reason why not. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gkm.topology.labels import flavor
from gkm.topology.survey import LocatedNode
from gkm.topology.taints import DEFAULT_TOLERATIONS, Toleration, untolerated

_UNHEALTHY = "unhealthy"
_NO_SCOPES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Selector:
    """Which nodes: in this region, in this cluster, with these labels. What is empty selects every node."""

    region: str = ""
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, located: LocatedNode) -> bool:
        """Return whether a node is selected."""
        location = located.location
        if self.region not in ("", location.region) or self.cluster not in ("", location.cluster):
            return False
        if not self.labels:
            return True
        labels = located.node.labels
        return all(labels.get(key) == value for key, value in self.labels.items())


@dataclass(frozen=True, slots=True)
class Scope:
    """A budget's nodes, by the name that its ceiling has."""

    name: str
    selector: Selector


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks of its nodes. With scopes, a node is in one of them at least."""

    flavor: str
    selector: Selector = field(default_factory=Selector)
    scopes: tuple[Scope, ...] = ()
    tolerations: tuple[Toleration, ...] = DEFAULT_TOLERATIONS

    def __post_init__(self) -> None:
        """Refuse scopes that share a name.

        Raises:
            ValueError: two do.
        """
        if twice := [name for name, count in Counter(scope.name for scope in self.scopes).items() if count > 1]:
            raise ValueError(f"several scopes have the name {min(twice)!r}")

    def scopes_of(self, located: LocatedNode) -> frozenset[str]:
        """Return the names of the scopes that take a node."""
        if not self.scopes:
            return _NO_SCOPES
        return frozenset(scope.name for scope in self.scopes if scope.selector.matches(located))


class Exclusion(StrEnum):
    """Why a run does not use a node: of several reasons the first in this order."""

    NO_GPUS = "NoGPUs"
    FLAVOR = "OtherFlavor"
    SELECTOR = "NotSelected"
    SCOPE = "OutsideScopes"
    CORDONED = "Cordoned"
    NOT_READY = "NotReady"
    FABRIC_UNHEALTHY = "FabricUnhealthy"
    TAINTED = "Tainted"


@dataclass(frozen=True, slots=True)
class Excluded:
    """A node that a run does not use. `detail` is the flavor or the taint that it has, where that is why."""

    node: str
    why: Exclusion
    detail: str = ""


def excluded(located: LocatedNode, demand: Demand) -> Excluded | None:
    """Return why a run does not use a node, None where it may."""
    why = _why(located, demand)
    return None if why is None else Excluded(located.node.name, why, _detail(why, located, demand))


def _why(located: LocatedNode, demand: Demand) -> Exclusion | None:  # noqa: PLR0911 - one return for each reason
    node = located.node
    if not located.gpus:
        return Exclusion.NO_GPUS
    if located.flavor != flavor(demand.flavor):
        return Exclusion.FLAVOR
    if not demand.selector.matches(located):
        return Exclusion.SELECTOR
    if demand.scopes and not demand.scopes_of(located):
        return Exclusion.SCOPE
    if node.spec.unschedulable:
        return Exclusion.CORDONED
    if not node.ready:
        return Exclusion.NOT_READY
    if located.health == _UNHEALTHY:
        return Exclusion.FABRIC_UNHEALTHY
    return None if untolerated(node.taints, demand.tolerations) is None else Exclusion.TAINTED


def _detail(why: Exclusion, located: LocatedNode, demand: Demand) -> str:
    if why is Exclusion.FLAVOR:
        return located.flavor
    return str(untolerated(located.node.taints, demand.tolerations)) if why is Exclusion.TAINTED else ""
