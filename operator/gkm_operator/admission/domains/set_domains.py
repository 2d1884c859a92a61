"""Reads the enrolled set that an object belongs to, and the ComputeDomains of that set, from the view."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gkm.api.grove import GROUP, PodCliqueSet
from gkm.api.mnnvl_metadata import PART_OF, REPLICA_INDEX, MnnvlMetadata

from gkm_operator.admission.domains.view import View, ViewUnavailable
from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.required import (
    DomainDifference,
    SetDomainKey,
    difference,
    existing,
    replica_index,
    required_domains,
)


@dataclass(frozen=True, slots=True)
class JoinableDomain:
    """A ComputeDomain: its name, and that of its ResourceClaimTemplate."""

    name: str
    template: str


@dataclass(frozen=True, slots=True)
class SetDomains:
    """An enrolled set and its domains.

    `joinable` are those that are not being deleted, also for replicas that the set does not require any more. `leaving`
    are those that are being deleted: they serve until their pods have ended, and come back under their names. `foreign`
    are the names of those that another operator wrote, such as Grove before its own feature was switched off. Pods join
    them, but GKM may never be able to replace one that is being deleted.
    """

    pod_clique_set: PodCliqueSet
    required: frozenset[SetDomainKey]
    difference: DomainDifference
    joinable: Mapping[SetDomainKey, JoinableDomain]
    leaving: Mapping[SetDomainKey, JoinableDomain]
    foreign: frozenset[str]


class SetDomainsReader:
    """Reads the domains of sets, as GKM manages them."""

    def __init__(self, view: View, gpus: GPURequests) -> None:
        self._view = view
        self._gpus = gpus

    def set_of(self, namespace: str, metadata: MnnvlMetadata, *, again: bool = False) -> PodCliqueSet | None:
        """Return the set that an object belongs to, by its owner or its label; None if it belongs to none.

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
            raise ViewUnavailable(f"its PodCliqueSet {name[:253]} is not found")
        return found

    def read(
        self,
        namespace: str,
        metadata: MnnvlMetadata,
        classes: DeviceClasses,
        is_required: Callable[[SetDomains], bool] = lambda _found: True,
    ) -> SetDomains | None:
        """Return the domains of the enrolled set that an object belongs to; None if GKM has no part in it.

        A watch may lag behind Grove's. So the set is read again if the object belongs to a replica that the set seems
        not to have, or if `is_required` returns False.

        Raises:
            ViewUnavailable: the cluster cannot be read.
        """
        if metadata.terminating or self._view.grove_manages_domains:
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
        if self._view.grove_manages_domains is None:
            raise ViewUnavailable("the ConfigMap gkm-domains is not read yet")
        owned = {domain.metadata.name: domain for domain in self._view.domains_of(owner)}
        required = required_domains(owner, self._gpus, classes)
        compared = difference(required, map(existing, owned.values()))
        joinable, leaving = (
            {
                domain.key: JoinableDomain(domain.name, owned[domain.name].template or domain.name)
                for domain in domains
                if domain.key is not None and domain.terminating == terminating
            }
            for domains, terminating in (
                ((*compared.release, *compared.present.values()), False),
                (compared.lost, True),
            )
        )
        foreign = frozenset(name for name, domain in owned.items() if not domain.written_by_gkm)
        return SetDomains(owner, required, compared, joinable, leaving, foreign)
