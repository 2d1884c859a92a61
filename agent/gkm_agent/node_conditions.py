"""The condition Ready of a node object: how its caches stand, in the form that every tool of Kubernetes reads. Pure."""

from gkm.api.meta import FALSE, TRUE, Condition, with_condition
from gkm.api.nodes import NodeStatus
from gkm.hoststate.pointers import CacheState
from msgspec import structs

from gkm_agent.report.status import summary

READY = "Ready"
_UNDER_WAY = frozenset({CacheState.PENDING, CacheState.DOWNLOADING, CacheState.EXTRACTING})


def with_conditions(status: NodeStatus, before: list[Condition], now: str) -> NodeStatus:
    """Return a status with its conditions; `before` are those of the object now, `now` is a time of the API.

    Equal to what the object says where nothing changed: the transition time moves with the status of the condition.
    """
    value, reason, message = ready(status)
    own = [condition for condition in before if condition.type == READY]
    generation = status.observed_generation
    return structs.replace(
        status, conditions=with_condition(own, Condition(READY, value, reason, message, now, generation))
    )


def without_conditions(status: NodeStatus) -> NodeStatus:
    """Return what a status says of GPUs and caches alone."""
    return structs.replace(status, observed_generation=0, conditions=[])


def observed(status: NodeStatus, generation: int) -> NodeStatus:
    """Return a status that is about a generation of its object."""
    conditions = [structs.replace(condition, observed_generation=generation) for condition in status.conditions]
    return structs.replace(status, observed_generation=generation, conditions=conditions)


def ready(status: NodeStatus) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready. A cache that is being deleted is not wanted."""
    states = {cache.state for cache in status.caches.values()}
    message = summary(status) or "no caches"
    if CacheState.FAILED in states:
        return FALSE, "CachesFailed", message
    if states & _UNDER_WAY:
        return FALSE, "CachesPending", message
    if CacheState.INCOMPATIBLE in states:
        return FALSE, "CachesIncompatible", message
    return TRUE, "AllCachesReady", message
