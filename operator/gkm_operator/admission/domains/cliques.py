"""Decisions about PodCliques and PodCliqueScalingGroups of enrolled sets, from the set and its ComputeDomains.

No clique before all domains: the CREATE of both is refused until every ComputeDomain of the set exists. A PodClique
gets the claim of its domain at every write, because Grove replaces the specification of a standalone clique at each
sync; if claims that do not exist yet decide about that, it waits for them. An UPDATE needs only the clique's own
domain, also one that is being deleted: it comes back when its pods have ended, and they may end by this very update.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gkm.api.computedomains import ComputeDomain
from gkm.api.grammar import listed
from gkm.api.grove import GROUP, PodCliqueSet
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, PART_OF, REPLICA_INDEX, MnnvlMetadata

from gkm_operator.admission.domains.cluster_view import ReviewView, ViewUnavailable
from gkm_operator.admission.domains.patches import add_entries, place
from gkm_operator.admission.domains.requests import DomainRequest, ReviewedClique, ReviewedScalingGroup
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused, warned
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import (
    MAX_NAME_LENGTH,
    DomainDifference,
    SetDomainKey,
    difference,
    domain_name,
    domain_of,
    key_of,
    membership_of,
    replica_index,
    required_domains,
)

UPDATE = "UPDATE"
_SHOWN_DOMAINS = 3


@dataclass(frozen=True, slots=True)
class SetDomains:
    """The ComputeDomains of a PodCliqueSet that is enrolled in them, as a review sees them.

    `joinable` are the domains that are not being deleted, also for replicas that the set does not require any more.
    `leaving` are the domains that are being deleted: they serve until their pods have ended, and come back under their
    names.
    """

    pod_clique_set: PodCliqueSet
    required: frozenset[SetDomainKey]
    difference: DomainDifference
    joinable: Mapping[SetDomainKey, ComputeDomain]
    leaving: Mapping[SetDomainKey, ComputeDomain]


class SetDomainsReader:
    """Reads the ComputeDomains of PodCliqueSets through a ReviewView, for one review."""

    def __init__(self, view: ReviewView, gpus: GPURequests) -> None:
        self._view = view
        self._gpus = gpus

    def set_of(self, namespace: str, metadata: MnnvlMetadata, *, again: bool = False) -> PodCliqueSet | None:
        """Return the PodCliqueSet that an object belongs to, by its owner or label; None if it belongs to no set.

        Raises:
            ViewUnavailable: the set cannot be read, or Grove controls the object and its set is not found. It may be
                new, and an object that is admitted without it would never get its claim.
        """
        owner, name, uid = metadata.controller, metadata.label(PART_OF), ""
        controlled = owner is not None and owner.api_version.partition("/")[0] == GROUP
        if owner is not None and controlled and owner.kind == "PodCliqueSet":
            name, uid = owner.name, owner.uid
        if not name:
            return None
        found = self._view.pod_clique_set(namespace, name, uid, again=again)
        if controlled and (found is None or uid not in ("", found.metadata.uid)):
            raise ViewUnavailable(f"the PodCliqueSet {name[:253]} that owns the PodClique is not found")
        return found

    def read(
        self,
        namespace: str,
        metadata: MnnvlMetadata,
        classes: DeviceClasses,
        is_required: Callable[[SetDomains], bool] = lambda _found: True,
    ) -> SetDomains | None:
        """Return the ComputeDomains of the enrolled set that an object belongs to; None if its set is not enrolled.

        A watch may lag behind Grove's. So the set is read again if the object belongs to a replica that the set seems
        not to have, or if `is_required` returns False.

        Raises:
            ViewUnavailable: the cluster cannot be read.
        """
        if metadata.terminating or self._view.cluster.grove_manages_domains:
            return None
        found = self._observe(self.set_of(namespace, metadata), classes)
        if found is None:
            return None
        replica = replica_index(metadata.label(REPLICA_INDEX))
        if (replica is None or replica < found.pod_clique_set.replicas) and is_required(found):
            return found
        return self._observe(self.set_of(namespace, metadata, again=True), classes)

    def _observe(self, owner: PodCliqueSet | None, classes: DeviceClasses) -> SetDomains | None:
        """Return the domains of a set; None if it is not enrolled."""
        if owner is None or not dialect.enrolls(owner):
            return None
        self._view.cluster.require_manager()
        required = required_domains(owner, self._gpus, classes)
        compared = difference(required, self._view.cluster.domains_of(owner))
        joinable, leaving = (
            {
                key: domain
                for domain in domains
                if (key := key_of(domain)) is not None and domain.metadata.terminating == terminating
            }
            for domains, terminating in (
                ((*compared.release, *compared.present.values()), False),
                (compared.lost, True),
            )
        )
        return SetDomains(owner, required, compared, joinable, leaving)


def review_clique(view: ReviewView, request: DomainRequest[ReviewedClique], *, gpus: GPURequests) -> ReviewResponse:
    """Refuse a PodClique until its set's ComputeDomains exist, and add the resource claim.

    Raises:
        ViewUnavailable: the cluster cannot be read.
    """
    clique = request.object
    classes = view.device_classes(request.namespace)

    def is_required(found: SetDomains) -> bool:
        key = domain_of(found.pod_clique_set, clique)
        return key is None or key in found.required or not _requests_gpus(gpus, clique, found, classes)

    found = SetDomainsReader(view, gpus).read(request.namespace, clique.metadata, classes, is_required)
    if found is None:
        return ADMITTED
    key = domain_of(found.pod_clique_set, clique)
    exists = request.operation == UPDATE
    own = None if key is None else found.joinable.get(key) or (found.leaving.get(key) if exists else None)
    if not (exists and (own is not None or key is None)) and (refusal := _refusal(found, key)):
        return refusal
    if key is None:
        return ADMITTED
    # A claim that does not exist yet may be for GPUs: an admitted clique would stay without its ComputeDomain.
    classes = view.device_classes(request.namespace, strict=True)
    if own is not None:
        return _inject(gpus, clique, own, classes, everywhere=_shares_gpus(gpus, clique, found, classes))
    is_part = key in found.required or not _requests_gpus(gpus, clique, found, classes)
    return ADMITTED if is_part else _not_part(found, key)


def _requests_gpus(gpus: GPURequests, clique: ReviewedClique, found: SetDomains, classes: DeviceClasses) -> bool:
    return gpus.any(clique.spec.pod_spec, classes) or _shares_gpus(gpus, clique, found, classes)


def _shares_gpus(gpus: GPURequests, clique: ReviewedClique, found: SetDomains, classes: DeviceClasses) -> bool:
    member = membership_of(found.pod_clique_set, clique)
    if member is None or member.clique is None:
        return False
    return gpus.sharing(found.pod_clique_set, classes)(member.clique, member.scaling_group)


def _inject(
    gpus: GPURequests, clique: ReviewedClique, domain: ComputeDomain, classes: DeviceClasses, *, everywhere: bool
) -> ReviewResponse:
    spec, metadata, name, at = clique.spec.pod_spec, clique.metadata, domain.metadata.name, "/spec/podSpec"
    if not everywhere and not gpus.any(spec, classes):
        return ADMITTED
    injection = inject(spec, domain.template or name, at, gpus, classes, everywhere=everywhere)
    if injection.skipped:
        return warned(f"pods of {metadata.name} join no ComputeDomain of GKM: {injection.skipped}")
    if len(name) > MAX_NAME_LENGTH:  # a domain of Grove, whose name no label can have
        return ReviewResponse(allowed=True, patch=tuple(injection.operations))
    label = {} if metadata.label(DOMAIN_LABEL) == name else {DOMAIN_LABEL: name}
    labeled = add_entries("/metadata/labels", label, exists=metadata.has_labels)
    placed = place(spec, name, at, gpus.settings)
    return ReviewResponse(allowed=True, patch=(*injection.operations, *labeled, *placed))


def review_scaling_group(
    view: ReviewView, request: DomainRequest[ReviewedScalingGroup], *, gpus: GPURequests
) -> ReviewResponse:
    """Refuse a PodCliqueScalingGroup until the set's domains exist, and add the set's annotations.

    Raises:
        ViewUnavailable: the cluster cannot be read.
    """
    metadata = request.object.metadata
    if metadata.terminating or view.cluster.grove_manages_domains:
        return ADMITTED
    domains = SetDomainsReader(view, gpus)
    owner = domains.set_of(request.namespace, metadata)
    if owner is None:
        return ADMITTED
    found = domains.read(request.namespace, metadata, view.device_classes(request.namespace))
    if request.operation != UPDATE and found is not None and (refusal := _refusal(found)):
        return refusal
    template = metadata.name.removeprefix(f"{owner.metadata.name}-{metadata.label(REPLICA_INDEX)}-")
    inherited = dialect.scaling_group_annotations(owner, template)
    missing = {key: value for key, value in inherited.items() if metadata.annotation(key) is None}
    patch = tuple(add_entries("/metadata/annotations", missing, exists=metadata.has_annotations))
    return ReviewResponse(allowed=True, patch=patch)


def _refusal(found: SetDomains, key: SetDomainKey | None = None) -> ReviewResponse | None:
    """Return the refusal of an object until all domains exist; `key` is its own one."""
    name = found.pod_clique_set.metadata.name
    missing = [domain_name(name, key.replica, key.group) for key in found.difference.create]
    # GKM may never be able to replace a domain of another operator that is being deleted: only its own pods wait.
    due = (domain for domain in found.difference.lost if domain.written_by_gkm or key_of(domain) == key)
    lost = [domain.metadata.name for domain in due]
    if not missing and not lost:
        return None
    causes = [
        f"{what} {listed(names, _SHOWN_DOMAINS)}"
        for what, names in (("without", missing), ("with deleted", lost))
        if names
    ]
    message = (
        f"PodCliqueSet {name} is {' and '.join(causes)} of its {len(found.required)} ComputeDomains; GKM creates them, "
        "and its operator repeats this request. If this lasts, see the events of the PodCliqueSet"
    )
    return refused(message)


def _not_part(found: SetDomains, key: SetDomainKey) -> ReviewResponse:
    owner = found.pod_clique_set
    message = (
        f"PodCliqueSet {owner.metadata.name} with {owner.replicas} replicas requires no ComputeDomain "
        f"{domain_name(owner.metadata.name, key.replica, key.group)} for this PodClique; it was scaled or changed since"
    )
    return refused(message)
