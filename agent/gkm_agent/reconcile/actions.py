"""Decide the list of actions of one pass from the desired and the observed state. Pure.

The agent executes the actions in this order. Pointers of deleted cache objects are replaced first: until then, pods can
mount files that only the deleted object had access to, and asking a registry may take long.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from gkm.gpus.values import Inventory
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import Pointer

from gkm_agent.caches import decisions
from gkm_agent.caches.decisions import RetryAt, StartPull, WritePointer
from gkm_agent.caches.model import WantedCache
from gkm_agent.reconcile.observed import Observation


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The input of one pass: the wanted caches of this node, and the conditions under which it serves them.

    `complete`: the source has listed all caches, so a missing cache is a deleted one.
    """

    caches: Mapping[CacheRef, WantedCache]
    complete: bool
    inventory: Inventory
    policy: str
    serve_revoked: bool


@dataclass(frozen=True, slots=True)
class RemoveCache:
    """Action: remove the pointer and the check of a cache that no object wants."""


@dataclass(frozen=True, slots=True)
class ReplaceForeignPointer:
    """Action: replace a pointer that was written for an earlier object of the same name."""

    pointer: Pointer


@dataclass(frozen=True, slots=True)
class RecordError:
    """Action: record an exception about one cache as a failed attempt."""

    error: Exception


CacheAction = RemoveCache | ReplaceForeignPointer | RecordError | WritePointer | StartPull | RetryAt
Actions = list[tuple[CacheRef, CacheAction]]


def decide(desired: DesiredState, observation: Observation, pulling: Container[CacheRef], now: float) -> Actions:
    """Return the actions of one reconcile pass.

    A cache in `pulling` gets no action, unless its pointer belongs to an earlier object of the same name.
    """
    actions: Actions = [(ref, RemoveCache()) for ref in observation.unwanted]
    for ref, wanted in desired.caches.items():
        if decisions.is_foreign(wanted, observation.caches[ref].pointer):
            actions.append((ref, ReplaceForeignPointer(decisions.unproven_pointer(wanted))))
    for ref, wanted in desired.caches.items():
        if ref in pulling:
            continue
        action = _action_for(wanted, desired, observation, now)
        if action is not None:
            actions.append((ref, action))
    return actions


def _action_for(
    wanted: WantedCache, desired: DesiredState, observation: Observation, now: float
) -> decisions.Action | RecordError | None:
    if wanted.ref in observation.errors:
        return RecordError(observation.errors[wanted.ref])
    observed = observation.caches[wanted.ref]
    try:
        return decisions.decide(
            wanted, observed, desired.inventory, desired.policy, now, serve_revoked=desired.serve_revoked
        )
    except Exception as error:  # noqa: BLE001 -- a defect that one cache triggers must not stop the others
        return RecordError(error)
