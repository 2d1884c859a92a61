"""Make the ComputeDomains that GKM creates, and the patches that it sends for them. Pure.

The domain of a PodCliqueSet is as Grove's operator writes it (names, labels, owner, finalizer), with a label of GKM
besides. The domain of a label has that label instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from gkm.api import computedomains, grove
from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_readiness import unused
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import (
    COMPONENT,
    DOMAIN_COMPONENT,
    DOMAIN_LABEL,
    FINALIZER,
    GROVE_OPERATOR,
    MANAGED_BY,
    MNNVL_GROUP,
    MNNVL_READY,
    OBJECT_NAME,
    PART_OF,
    PODS_USING,
    REPLICA_INDEX,
    WRITER,
    WRITER_LABEL,
    MnnvlMetadata,
    Owner,
)
from gkm.kube.resources import PODCLIQUESETS

from gkm_operator.mnnvl.required import SetDomainKey, alternative_name, domain_name, key_of

Json = dict[str, Any]


class WorkloadKind(StrEnum):
    """The kind of workload that has a ComputeDomain: a PodCliqueSet, or pods with a value of GKM's domain label."""

    SET = "set"
    LABEL = "label"


class Workload(NamedTuple):
    """The key of a reconcile: a PodCliqueSet by name, or a label's value, which is the name of the domain."""

    kind: WorkloadKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class DesiredDomain:
    """A ComputeDomain to create, with the first of `names` that is free.

    `purpose` is for messages. With a `key`, an existing domain of the same key and controller is the desired one;
    without, any domain of the name is.
    """

    workload: Workload
    names: Sequence[str]
    labels: Mapping[str, str]
    owners: Sequence[Owner]
    purpose: str
    key: SetDomainKey | None = None

    def is_met_by(self, domain: ComputeDomain) -> bool:
        """Return whether an existing domain already is this desired domain."""
        if self.key is None:
            return domain.metadata.name in self.names
        controller = domain.metadata.controller
        is_own = controller is not None and any(controller.uid == owner.uid for owner in self.owners)
        return is_own and key_of(domain) == self.key

    def manifest(self, name: str, now: str) -> Json:
        """Return the ComputeDomain to create as JSON, with the mark that no pod uses it yet."""
        metadata = {
            "name": name,
            "namespace": self.workload.namespace,
            "labels": {**self.labels, OBJECT_NAME: name, WRITER_LABEL: WRITER},
            "annotations": {PODS_USING: "0", MNNVL_READY: unused(now).text()},
            "finalizers": [FINALIZER],
            "ownerReferences": [owner_json(owner) for owner in self.owners],
        }
        channel = {"resourceClaimTemplate": {"name": name}}
        return {
            "apiVersion": computedomains.API_VERSION,
            "kind": computedomains.KIND,
            "metadata": metadata,
            "spec": {"numNodes": 0, "channel": channel},
        }


def of_set(pod_clique_set: PodCliqueSet, key: SetDomainKey) -> DesiredDomain:
    """Return the desired ComputeDomain for one replica of a PodCliqueSet, or for a group in the replica."""
    metadata = pod_clique_set.metadata
    labels = {
        MANAGED_BY: GROVE_OPERATOR,
        PART_OF: metadata.name,
        COMPONENT: DOMAIN_COMPONENT,
        REPLICA_INDEX: str(key.replica),
    }
    where = metadata.name, key.replica, key.group
    names = domain_name(*where), alternative_name(*where), alternative_name(*where, metadata.uid)
    return DesiredDomain(
        Workload(WorkloadKind.SET, metadata.namespace, metadata.name),
        tuple(dict.fromkeys(names)),
        labels | ({MNNVL_GROUP: key.group} if key.group else {}),
        (Owner(grove.API_VERSION, PODCLIQUESETS.kind, metadata.name, metadata.uid, controller=True),),
        f"group {key.group} of replica {key.replica}" if key.group else f"replica {key.replica}",
        key,
    )


def of_label(workload: Workload, owners: Sequence[Owner]) -> DesiredDomain:
    """Return the desired ComputeDomain for pods with a value of the label `gkm.io/compute-domain`."""
    return DesiredDomain(
        workload, (workload.name,), {DOMAIN_LABEL: workload.name}, owners, f"label {DOMAIN_LABEL}: {workload.name}"
    )


def workload_of(domain: ComputeDomain) -> Workload | None:
    """Return the workload that a ComputeDomain was created for; None for a user's domain."""
    metadata, controller = domain.metadata, domain.metadata.controller
    if controller is not None and is_set(controller):
        return Workload(WorkloadKind.SET, metadata.namespace, controller.name)
    if not domain.written_by_gkm:
        return None
    if metadata.label(DOMAIN_LABEL):
        return Workload(WorkloadKind.LABEL, metadata.namespace, metadata.name)
    # `kubectl delete --cascade=orphan` takes the owner away.
    return Workload(WorkloadKind.SET, metadata.namespace, metadata.label(PART_OF))


def is_released(domain: ComputeDomain) -> bool:
    """Return whether GKM has released a ComputeDomain, so that only other controllers must still act."""
    return domain.metadata.terminating and FINALIZER not in (domain.metadata.finalizers or ())


def is_set(owner: Owner) -> bool:
    """Return whether an owner is a PodCliqueSet, of any version."""
    return owner.kind == PODCLIQUESETS.kind and owner.api_version.partition("/")[0] == grove.GROUP


def owner_json(owner: Owner) -> Json:
    """Return an owner reference as JSON; only a controller reference blocks foreground deletion, as in Grove."""
    controls = {"controller": True, "blockOwnerDeletion": True} if owner.controller else {}
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid, **controls}


def without_finalizer(metadata: MnnvlMetadata) -> Json:
    """Return patch metadata that removes Grove's finalizer only; {} if the object does not have it.

    A merge patch replaces the whole list, so it names the version: another controller may add a finalizer meanwhile.
    """
    finalizers = metadata.finalizers or ()
    if FINALIZER not in finalizers:
        return {}
    rest = [name for name in finalizers if name != FINALIZER]
    return {"finalizers": rest or None, "resourceVersion": metadata.resource_version}


def with_owners(metadata: MnnvlMetadata, more: Sequence[Owner]) -> Json:
    """Return patch metadata that adds owner references, with the resourceVersion that was read."""
    owners = [owner_json(owner) for owner in (*(metadata.owner_references or ()), *more)]
    return {"ownerReferences": owners, "resourceVersion": metadata.resource_version}
