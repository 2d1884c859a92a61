"""The Events about ComputeDomains, on the PodCliqueSet or the workload that has them, or on the domain itself. Pure.

The first four have the reasons and texts of Grove's design document.
"""

from collections.abc import Collection

from gkm.api import computedomains, grove
from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_readiness import MNNVL_READY_TYPE, MNNVLReadiness, ReadyReason
from gkm.api.grammar import agree, listed
from gkm.api.grove import PodCliqueSet
from gkm.api.meta import TRUE
from gkm.api.mnnvl_metadata import USED_BY, Owner
from gkm.kube.events import EventBody, Regarding
from gkm.kube.resources import PODCLIQUESETS

CREATE, DELETE, ENROLL = "Create", "Delete", "Enroll"
FAILED = "ComputeDomainFailed"
_SHOWN = 5
REPORTER = "gkm.io/computedomains"
"""The reporting controller of every Event about ComputeDomains."""


def created(name: str) -> EventBody:
    """Return the Event body for a ComputeDomain that GKM created."""
    return EventBody("Normal", "ComputeDomainCreated", CREATE, f"ComputeDomain {name} created")


def not_created(purpose: str, error: str) -> EventBody:
    """Return the Event body for a ComputeDomain that could not be created."""
    return EventBody("Warning", FAILED, CREATE, f"Failed to create ComputeDomain for {purpose}: {error}")


def deleted(name: str) -> EventBody:
    """Return the Event body for a ComputeDomain that GKM released."""
    return EventBody("Normal", "ComputeDomainDeleted", DELETE, f"ComputeDomain {name} deleted")


def not_deleted(name: str, error: str) -> EventBody:
    """Return the Event body for a ComputeDomain that could not be released."""
    return EventBody("Warning", FAILED, DELETE, f"Failed to delete ComputeDomain {name}: {error}")


def lost(name: str) -> EventBody:
    """Return the Event body for a needed ComputeDomain that another client deleted."""
    note = f"ComputeDomain {name} was deleted while it is required; GKM creates it again once it is gone"
    return EventBody("Warning", "ComputeDomainLost", CREATE, note)


def held(domain: ComputeDomain) -> EventBody:
    """Return the Event body for a released ComputeDomain that pods on dead nodes hold; its successor is named anew."""
    name, used_by = domain.metadata.name, domain.metadata.annotation(USED_BY) or "unknown"
    note = (
        f"the deleted ComputeDomain {name} cannot go, because pods use it that should have ended: {used_by}. Its "
        "successor has another name. If their node is dead, delete them with kubectl delete pod NAME --force"
    )
    return EventBody("Warning", "ComputeDomainHeld", DELETE, note)


def not_ours(name: str) -> EventBody:
    """Return the Event body for a ComputeDomain of a PodCliqueSet that another operator created."""
    note = f"another operator wrote ComputeDomain {name}: GKM adds its claim to pods, but does not repair or delete it"
    return EventBody("Normal", "ComputeDomainNotOurs", CREATE, note)


def unavailable(why: str) -> EventBody:
    """Return the Event body for an enrolled PodCliqueSet while GKM cannot manage ComputeDomains."""
    return EventBody("Warning", "DomainsUnavailable", ENROLL, why)


def grove_manages(cluster_role: str) -> EventBody:
    """Return the Event body for an enrolled PodCliqueSet whose domains the Grove operator manages."""
    note = (
        f"the Grove operator manages ComputeDomains (ClusterRole {cluster_role} may create them), so GKM leaves "
        "PodCliqueSets to it; switch off one of the two"
    )
    return EventBody("Normal", "GroveManagesDomains", ENROLL, note)


def too_many(problem: str) -> EventBody:
    """Return the Event body for a PodCliqueSet that needs more ComputeDomains than GKM creates."""
    return EventBody("Warning", FAILED, CREATE, problem)


def undecided(unseen: Collection[tuple[str, str]]) -> EventBody:
    """Return the Event body for a PodCliqueSet whose ComputeDomains depend on claims that cannot be read."""
    names = [f"{kind} {name}" for kind, name in sorted(unseen)]
    note = (
        "GKM cannot see whether some cliques request GPUs, and creates no ComputeDomain for them yet: "
        f"{listed(names, _SHOWN)} {agree(len(names), 'does', 'do')} not exist, or GKM may not read it; create it"
    )
    return EventBody("Warning", "ComputeDomainUndecided", CREATE, note)


def of_set(pod_clique_set: PodCliqueSet) -> Regarding:
    """Return the object reference of a PodCliqueSet for an Event."""
    metadata = pod_clique_set.metadata
    return Regarding(grove.API_VERSION, PODCLIQUESETS.kind, metadata.name, metadata.namespace, metadata.uid)


def of_owner(owner: Owner, namespace: str) -> Regarding:
    """Return the object reference of a workload's owner for an Event."""
    return Regarding(owner.api_version, owner.kind, owner.name, namespace, owner.uid)


NOT_READY = "MNNVLNotReady"
OBSERVE = "ObserveDomain"

LASTING_REASONS = frozenset(
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
"""Reasons of MNNVLReady that do not pass by themselves; other reasons occur at every start."""


def readiness_changed(domain: ComputeDomain, old: MNNVLReadiness | None, new: MNNVLReadiness) -> EventBody | None:
    """Return the Event body for a change of MNNVLReady from `old` to `new`, None if it needs no Event."""
    note = f"ComputeDomain {domain.metadata.name}: {new.message}"
    was_ready = old is not None and old.status == TRUE
    if new.status == TRUE:
        return None if was_ready else EventBody("Normal", MNNVL_READY_TYPE, OBSERVE, note)
    failed = new.reason in LASTING_REASONS and new.expected > 0 and (old is None or old.reason != new.reason)
    ended = was_ready and new.reason != ReadyReason.WAITING_FOR_PODS
    return EventBody("Warning", NOT_READY, OBSERVE, f"{new.reason}: {note}") if failed or ended else None


def of_domain(domain: ComputeDomain) -> Regarding:
    """Return the object that an Event about a ComputeDomain regards: its controller, or the domain itself."""
    meta = domain.metadata
    if (owner := meta.controller) is not None:
        return Regarding(owner.api_version, owner.kind, owner.name, meta.namespace, owner.uid)
    return Regarding(computedomains.API_VERSION, computedomains.KIND, meta.name, meta.namespace, meta.uid)
