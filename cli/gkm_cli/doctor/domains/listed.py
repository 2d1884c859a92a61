"""The lists that the checks of ComputeDomains decide on, with objects reduced to the fields that decide."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gkm.api import computedomains
from gkm.api.computedomains import ComputeDomain
from gkm.api.mnnvl_metadata import NODE_LABEL, MnnvlMetadata
from gkm.api.pod_specs import PodClaim
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.kube import resources
from gkm.kube.api import Key
from gkm.kube.resources import Resource
from msgspec import Struct

from gkm_cli.doctor.findings import Finding, Severity, named
from gkm_cli.doctor.reader import Collection

CHECK_CONTROLLERS = "check that gkm-controllers run and that one leads"
SET_DEFINITION = "podcliquesets.grove.io"


class NamedObject(Struct, frozen=True):
    """Any object of which only the metadata matters."""

    metadata: MnnvlMetadata


class ListedClaim(NamedObject, frozen=True):
    """A ResourceClaim. Its other fields are any JSON: the configuration in it is opaque to Kubernetes."""

    spec: Any = None
    status: Any = None


class _ClaimReference(Struct, frozen=True, rename="camel"):
    name: str
    resource_claim_name: str | None = None


class _PodSpec(Struct, frozen=True, rename="camel"):
    resource_claims: tuple[PodClaim, ...] | None = None


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    resource_claim_statuses: tuple[_ClaimReference, ...] | None = None


class ListedClaimUser(NamedObject, frozen=True):
    """A pod. A cluster has 100,000 of them, so only its claims and its phase are decoded."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The lists that one check requested; the others are empty. `namespace` is "" if they are of all namespaces."""

    cutoff: str
    namespace: str = ""
    domains: Sequence[ComputeDomain] = ()
    sets: Sequence[NamedObject] = ()
    pods: Sequence[ListedClaimUser] = ()
    templates: Sequence[ResourceClaimTemplate] = ()
    claims: Sequence[ListedClaim] = ()
    nodes: Sequence[NamedObject] = ()

    def settled(self, metadata: MnnvlMetadata) -> bool:
        """Return whether an object is older than the cutoff."""
        return metadata.creation_timestamp <= self.cutoff

    @cached_property
    def domain_names(self) -> dict[str, str]:
        """Return the name of each ComputeDomain by its uid."""
        return {domain.metadata.uid: domain.metadata.name for domain in self.domains}


def key(metadata: MnnvlMetadata) -> Key:
    """Return namespace and name."""
    return metadata.namespace, metadata.name


def problem(kind: str, metadata: MnnvlMetadata, detail: str, why: str, hint: str) -> Finding:
    """Return a problem of an object."""
    return Finding(Severity.PROBLEM, named(kind, *key(metadata)), detail, why, hint)


COLLECTIONS: dict[str, Collection[Any]] = {
    "domains": Collection(resources.COMPUTEDOMAINS, computedomains.DEFINITION),
    "sets": Collection(resources.PODCLIQUESETS.of(NamedObject), SET_DEFINITION),
    "pods": Collection(Resource("v1", "Pod", "pods", namespaced=True, type=ListedClaimUser)),
    "templates": Collection(resources.CLAIM_TEMPLATES, computedomains.DEFINITION),
    "claims": Collection(resources.CLAIMS.of(ListedClaim), computedomains.DEFINITION),
    "nodes": Collection(resources.NODES.of(NamedObject), labels=NODE_LABEL),
}
"""The collections by the fields of `Listed`."""
