"""The event of a change of MNNVLReady, and the object that it is about. Pure."""

from gkm.api import computedomains
from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_readiness import MNNVL_READY_TYPE, MNNVLReadiness, ReadyReason
from gkm.api.meta import TRUE
from gkm.kube.events import EventBody, Regarding

NOT_READY = "MNNVLNotReady"
ACTION = "ObserveDomain"

FAILURES = frozenset(
    {
        ReadyReason.DOMAIN_LOST,
        ReadyReason.DOMAIN_TERMINATING,
        ReadyReason.TEMPLATE_MISSING,
        ReadyReason.CLAIM_MISSING,
        ReadyReason.NODE_TAKEN,
        ReadyReason.NODES_ISOLATED,
        ReadyReason.SEVERAL_CLIQUES,
    }
)
"""Reasons that do not pass by themselves. The others are part of every start."""


def event_of(domain: ComputeDomain, old: MNNVLReadiness | None, new: MNNVLReadiness) -> EventBody | None:
    """Return the event of a change from `old` to `new`, None if it deserves none."""
    note = f"ComputeDomain {domain.metadata.name}: {new.message}"
    was_ready = old is not None and old.status == TRUE
    if new.status == TRUE:
        return None if was_ready else EventBody("Normal", MNNVL_READY_TYPE, ACTION, note)
    failed = new.reason in FAILURES and new.expected > 0 and (old is None or old.reason != new.reason)
    ended = was_ready and new.reason != ReadyReason.WAITING_FOR_PODS
    return EventBody("Warning", NOT_READY, ACTION, f"{new.reason}: {note}") if failed or ended else None


def regarding(domain: ComputeDomain) -> Regarding:
    """Return the object that an event about a domain regards: the set that owns it, or the domain itself."""
    meta = domain.metadata
    if (owner := meta.controller) is not None:
        return Regarding(owner.api_version, owner.kind, owner.name, meta.namespace, owner.uid)
    return Regarding(computedomains.API_VERSION, computedomains.KIND, meta.name, meta.namespace, meta.uid)
