"""The condition Healthy of a NodeFabric, in the form that every tool of Kubernetes reads. Pure."""

from gkm.api.fabrics import NodeFabricStatus
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, with_condition
from msgspec import structs

HEALTHY = "Healthy"


def with_conditions(status: NodeFabricStatus, before: list[Condition], generation: int, now: str) -> NodeFabricStatus:
    """Return a status with its conditions, about a generation of its object.

    `before` are the conditions of the object now, `now` is a time of the API. Equal to what the object says where
    nothing changed.
    """
    value, reason, message = healthy(status)
    own = [condition for condition in before if condition.type == HEALTHY]
    new = Condition(HEALTHY, value, reason, message, now, generation)
    return structs.replace(status, observed_generation=generation, conditions=with_condition(own, new))


def without_conditions(status: NodeFabricStatus) -> NodeFabricStatus:
    """Return what was read of the fabric alone, without the moment."""
    return structs.replace(status, observed_generation=0, conditions=[], last_updated=None)


def healthy(status: NodeFabricStatus) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Healthy: Unknown where there is no fabric to be healthy."""
    if status.health == "healthy":
        return TRUE, "FabricHealthy", f"the node is in the NVLink domain {status.domain}"
    if status.health == "degraded":
        return FALSE, "FabricDegraded", status.message
    if status.health == "unhealthy":
        return FALSE, "FabricUnhealthy", status.message
    return UNKNOWN, "NoFabric", status.message or "the GPUs of the node are attached to no NVLink fabric"
