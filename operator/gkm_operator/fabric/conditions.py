"""Compute the condition NVLinkFabricHealthy of Nodes and of HyperNodes of NVLink domains, and the taint of a Node.

The health, its reason and its time are the agent's (gkm_agent.fabric.objects.healthy): here is no second rule about it.
A node without an NVLink fabric has no condition, because programs that repair nodes take Unknown for a fault. A node
counts in the domain that its agent reported last, also when a fault took the domain of the node. A node that is not
known keeps its taint: it gets none, and loses none. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from gkm.api.grammar import agree, count_of
from gkm.api.meta import FALSE, TRUE, UNKNOWN
from gkm.api.node_names import fold_sorted
from gkm.kube.resources import Json
from gkm.topology.nodes import FABRIC_HEALTHY, READY, Node, NodeCondition, Taint
from msgspec import Meta, Struct, structs

HEALTHY, NO_FABRIC, NODE_NOT_READY = "Healthy", "NoFabric", "NodeNotReady"
MAX_MESSAGE = 512
_Word = Annotated[str, Meta(max_length=317)]
_Conditions = Annotated[tuple[NodeCondition, ...], Meta(max_length=256)]


class _Metadata(Struct, frozen=True, gc=False):
    name: Annotated[str, Meta(max_length=253)]


class _Status(Struct, frozen=True, rename="camel", gc=False):
    """The domains, and the condition Healthy; the other conditions are not stored."""

    conditions: _Conditions | None = None
    domain: _Word = ""
    last_domain: _Word = ""

    def __post_init__(self) -> None:
        kept = tuple(each for each in self.conditions or () if each.type == HEALTHY)[:1]
        structs.force_setattr(self, "conditions", kept)


class ReportedFabric(Struct, frozen=True, gc=False):
    """A NodeFabric: the health of the NVLink fabric of a node, as its agent reports it."""

    metadata: _Metadata
    status: _Status = _Status()

    @property
    def name(self) -> str:
        """Return the name of the node, which is also the name of its NodeFabric."""
        return self.metadata.name

    @property
    def domain(self) -> str:
        """Return the NVLink domain of the node; during a fault, the last known domain; "" if absent."""
        return self.status.domain or self.status.last_domain

    @property
    def health(self) -> NodeCondition | None:
        """Return the condition Healthy of the NodeFabric, None before the first report."""
        return next(iter(self.status.conditions or ()), None)


def wanted_condition(node: Node, fabric: ReportedFabric | None) -> NodeCondition | None:
    """Return the condition NVLinkFabricHealthy that a Node should have; None without an NVLink fabric or a report.

    While a node is not ready, its agent may not report: the last report does not count. `last_transition_time` is the
    time since which the status is what it is, as the agent or the node controller wrote it.
    """
    report = fabric.health if fabric is not None else None
    if report is None or report.reason == NO_FABRIC:
        return None
    ready = node.condition(READY)
    if ready is None or ready.status != TRUE:
        since = (ready.last_transition_time if ready is not None else None) or report.last_transition_time
        message = f"the node is not ready; the last report of its agent was {report.reason}"
        return NodeCondition(FABRIC_HEALTHY, UNKNOWN, NODE_NOT_READY, message[:MAX_MESSAGE], since)
    return structs.replace(report, type=FABRIC_HEALTHY, message=report.message[:MAX_MESSAGE])


IMPAIRED, NOT_KNOWN, ALL_HEALTHY = "NodesImpaired", "NodesNotKnown", "NodesHealthy"
_WORST_FIRST = ((FALSE, IMPAIRED, "impaired"), (UNKNOWN, NOT_KNOWN, "not known"), (TRUE, ALL_HEALTHY, "healthy"))


def domain_condition(states: Mapping[str, NodeCondition]) -> NodeCondition | None:
    """Return the condition of an NVLink domain from the conditions of its nodes; None if it has no nodes.

    The worst status of a node decides. The domain has it since the first of these nodes has it; if all are healthy,
    since the last one is.
    """
    for status, reason, word in _WORST_FIRST:
        found = [name for name, state in states.items() if state.status == status]
        if found:
            times = [time for name in found if (time := states[name].last_transition_time)]
            since = (max if status == TRUE else min)(times, default=None)
            names = f": {fold_sorted(found)}" if status != TRUE else ""
            text = f"{len(found)} of {count_of(len(states), 'node')} {agree(len(found), 'is', 'are')} {word}{names}"
            return NodeCondition(FABRIC_HEALTHY, status, reason, text[:MAX_MESSAGE], since)
    return None


TAINT = "gkm.io/nvlink-fabric-unhealthy"
"""All taints with this key are GKM's, and no other is."""


def effects_of(taints: Iterable[Taint]) -> frozenset[str]:
    """Return the effects of GKM's fabric taint among the taints of a node; empty if the node does not have it."""
    return frozenset(taint.effect for taint in taints if taint.key == TAINT)


def wanted_effects(condition: NodeCondition | None, effect: str, now: frozenset[str]) -> frozenset[str]:
    """Return the effects that GKM's fabric taint should have on a node; `now` are its present effects."""
    if condition is not None and condition.status == UNKNOWN:
        return now
    return frozenset({effect} if condition is not None and condition.status == FALSE else ())


def with_effects(taints: Sequence[Json], effects: Iterable[str]) -> list[Json]:
    """Return a Node's taints with GKM's fabric taint replaced by one for each effect; other taints stay whole."""
    others = [taint for taint in taints if taint.get("key") != TAINT]
    return [*others, *({"key": TAINT, "effect": effect} for effect in sorted(effects))]
