"""Compute the condition NVLinkFabricHealthy of a Node from its NodeFabric and its readiness. Pure.

The health, its reason and its time are the agent's (gkm_agent.fabric.objects.healthy): here is no second rule about it.
A node without an NVLink fabric has no condition, because programs that repair nodes take Unknown for a fault.
"""

from typing import Annotated

from gkm.api.meta import TRUE, UNKNOWN
from msgspec import Meta, Struct, structs

CONDITION = "NVLinkFabricHealthy"
HEALTHY, NO_FABRIC, NODE_NOT_READY = "Healthy", "NoFabric", "NodeNotReady"
MAX_MESSAGE = 512
_Text = Annotated[str, Meta(max_length=32_768)]
_Word = Annotated[str, Meta(max_length=317)]
_READY = "Ready"


class FabricCondition(Struct, frozen=True, rename="camel", gc=False):
    """A condition of a Node or NodeFabric, without the heartbeat time."""

    type: _Text
    status: _Text
    reason: _Text = ""
    message: _Text = ""
    last_transition_time: _Text | None = None


_Conditions = Annotated[tuple[FabricCondition, ...], Meta(max_length=256)]


class _Metadata(Struct, frozen=True, gc=False):
    name: Annotated[str, Meta(max_length=253)]
    uid: _Word = ""


class _Status(Struct, frozen=True, rename="camel", gc=False):
    """The conditions in use; the others are not stored. A NodeFabric has domains, a Node has none."""

    conditions: _Conditions | None = None
    domain: _Word = ""
    last_domain: _Word = ""

    def __post_init__(self) -> None:
        kept = tuple(each for each in self.conditions or () if each.type in (CONDITION, HEALTHY, _READY))
        structs.force_setattr(self, "conditions", kept)


class ConditionedObject(Struct, frozen=True, gc=False):
    """A Node or a NodeFabric with its conditions."""

    metadata: _Metadata
    status: _Status = _Status()

    @property
    def name(self) -> str:
        """Return the name of the object."""
        return self.metadata.name

    @property
    def domain(self) -> str:
        """Return the NVLink domain of a NodeFabric; during a fault, the domain from before; "" if absent."""
        return self.status.domain or self.status.last_domain

    def condition(self, kind: str) -> FabricCondition | None:
        """Return the condition of a type."""
        return next((each for each in self.status.conditions or () if each.type == kind), None)


def wanted_condition(node: ConditionedObject, fabric: ConditionedObject | None) -> FabricCondition | None:
    """Return the condition that a Node should have; None without an NVLink fabric or a report of the agent.

    While a node is not ready, its agent may not report: the last report does not count. `last_transition_time` is the
    time since which the status is what it is, as the agent or the node controller wrote it.
    """
    report = fabric.condition(HEALTHY) if fabric is not None else None
    if report is None or report.reason == NO_FABRIC:
        return None
    ready = node.condition(_READY)
    if ready is None or ready.status != TRUE:
        since = (ready.last_transition_time if ready is not None else None) or report.last_transition_time
        message = f"the node is not ready; the last report of its agent was {report.reason}"
        return FabricCondition(CONDITION, UNKNOWN, NODE_NOT_READY, message[:MAX_MESSAGE], since)
    return structs.replace(report, type=CONDITION, message=report.message[:MAX_MESSAGE])
