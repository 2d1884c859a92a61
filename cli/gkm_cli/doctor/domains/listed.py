"""Read the lists of objects that the checks of ComputeDomains need, reduced to a few fields."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gkm.api import computedomains
from gkm.api.computedomains import ComputeDomain
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, NODE_LABEL, MnnvlMetadata
from gkm.api.pod_specs import PodClaim
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm.kube import resources
from gkm.kube.api import Key
from gkm.kube.resources import Resource
from msgspec import Struct

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.findings import Finding, Severity, named
from gkm_cli.doctor.runner import Check, ClusterReader, Collection, Subject

CHECK_CONTROLLERS = "check that gkm-controllers run and that one leads"
SET_DEFINITION = "podcliquesets.grove.io"


class NamedObject(Struct, frozen=True):
    """Any object, reduced to its metadata."""

    metadata: MnnvlMetadata


class ListedClaim(NamedObject, frozen=True):
    """A ResourceClaim. Its other fields are any JSON: the configuration in it is opaque to Kubernetes."""

    spec: Any = None
    status: Any = None


class _PodSpec(Struct, frozen=True, rename="camel"):
    resource_claims: tuple[PodClaim, ...] | None = None


class _ClaimReference(Struct, frozen=True, rename="camel"):
    name: str
    resource_claim_name: str | None = None


class _PodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    resource_claim_statuses: tuple[_ClaimReference, ...] | None = None


class ListedClaimUser(NamedObject, frozen=True):
    """A pod with its claims and its phase only: a cluster has 100,000 pods."""

    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


@dataclass(frozen=True, kw_only=True)
class Listed:
    """The lists of objects that one check requested; the others are empty. `namespace` is "" for all namespaces."""

    cutoff: str
    namespace: str = ""
    domains: Sequence[ComputeDomain] = ()
    sets: Sequence[NamedObject] = ()
    pods: Sequence[ListedClaimUser] = ()
    labeled_pods: Sequence[ListedClaimUser] = ()
    pending_pods: Sequence[ListedClaimUser] = ()
    templates: Sequence[ResourceClaimTemplate] = ()
    claims: Sequence[ListedClaim] = ()
    nodes: Sequence[NamedObject] = ()

    def settled(self, metadata: MnnvlMetadata) -> bool:
        """Return whether an object is older than the grace period of `gkm doctor` for new objects."""
        return metadata.creation_timestamp <= self.cutoff

    @cached_property
    def domain_names(self) -> dict[str, str]:
        """Return the name of each ComputeDomain by its uid."""
        return {domain.metadata.uid: domain.metadata.name for domain in self.domains}


def key(metadata: MnnvlMetadata) -> Key:
    """Return namespace and name of an object."""
    return metadata.namespace, metadata.name


def problem(kind: str, metadata: MnnvlMetadata, detail: str, why: str, hint: str) -> Finding:
    """Return a finding of the severity problem about an object."""
    return Finding(Severity.PROBLEM, named(kind, *key(metadata)), detail, why, hint)


_PODS = Resource("v1", "Pod", "pods", namespaced=True, type=ListedClaimUser)
COLLECTIONS: dict[str, Collection[Any]] = {
    "domains": Collection(resources.COMPUTEDOMAINS, computedomains.DEFINITION),
    "sets": Collection(resources.PODCLIQUESETS.of(NamedObject), SET_DEFINITION),
    "pods": Collection(_PODS),
    "labeled_pods": Collection(_PODS, labels=DOMAIN_LABEL),
    "pending_pods": Collection(_PODS, fields="status.phase=Pending"),
    "templates": Collection(resources.CLAIM_TEMPLATES, computedomains.DEFINITION),
    "claims": Collection(resources.CLAIMS.of(ListedClaim), computedomains.DEFINITION),
    "nodes": Collection(resources.NODES.of(NamedObject), labels=NODE_LABEL),
}
"""The collections by the fields of `Listed`."""


def read_lists(reader: ClusterReader, fields: Sequence[str]) -> Listed:
    """Return these lists, each of which is read once; raise Unreadable if one cannot be read.

    All pods of a cluster are read only where the kind of ComputeDomains is installed, or may not be looked up.

    So all checks together read nodes, ComputeDomains, sets, pods, templates and claims in this order: an object that
    appears or goes between two lists gives no finding, or is younger than the cutoff.
    """
    if "pods" in fields and _is_missing(reader):
        fields = ()
    lists = reader.all(*(partial(reader.list, COLLECTIONS[field]) for field in fields))
    return Listed(cutoff=reader.cutoff, namespace=reader.namespace, **dict(zip(fields, lists, strict=True)))


def _is_missing(reader: ClusterReader) -> bool:
    try:
        return reader.get(resources.DEFINITIONS, computedomains.DEFINITION) is None
    except Unreadable:
        return False


def check(
    name: str, passed: str, fields: str, subject: Subject[Listed], *, cluster_wide: bool = False
) -> Callable[[Callable[[Listed], Iterator[Finding]]], Check[Listed]]:
    """Make a check of a function that decides on these fields of `Listed`."""
    return lambda decide: Check(name, passed, decide, read_lists, fields.split(), subject, cluster_wide)
