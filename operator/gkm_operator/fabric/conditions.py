"""Compute the condition NVLinkFabricHealthy of a Node from its NodeFabric and its readiness. Pure.

The health, its reason and its time are the agent's (gkm_agent.fabric.objects.healthy): here is no second rule about it.
A node without an NVLink fabric has no condition, because programs that repair nodes take Unknown for a fault.
"""

from typing import Annotated

from gkm.api.meta import TRUE, UNKNOWN
from gkm.topology.nodes import FABRIC_HEALTHY, READY, Node, NodeCondition
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
