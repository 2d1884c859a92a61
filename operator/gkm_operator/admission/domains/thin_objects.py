"""PodCliqueSets and ComputeDomains as the view stores them: reduced when they are decoded, equal values shared.

A cluster has ten thousand of them, and a review reads the annotations, the groups and the GPU requests. Must never be
written back.
"""

from sys import intern
from typing import Any, TypeVar

import msgspec
from gkm.api import computedomains, grove
from gkm.api.computedomains import ComputeDomain, ComputeDomainStatus
from gkm.api.domain_capacity import DomainsConfigMap
from gkm.api.grove import CliqueSpec, CliqueTemplate, PodCliqueSet, SetSpec, SetTemplate
from gkm.api.mnnvl_metadata import DOMAIN_LABEL, MNNVL_GROUP, REPLICA_INDEX, WRITER_LABEL, MnnvlMetadata
from gkm.api.pod_specs import Container, ContainerResources, PodSpec, Quantities
from gkm.hoststate.lru import LRUCache
from gkm.kube.memory import MAX_HELD_BYTES, held_bytes
from gkm.kube.resources import Resource
from msgspec import Struct, structs

from gkm_operator.mnnvl import dialect

T = TypeVar("T", bound=Struct)
_DEDUPLICATED: LRUCache[bytes, Any] = LRUCache(1024)
_NO_STATUS = ComputeDomainStatus()
_DOMAIN_LABELS = (DOMAIN_LABEL, MNNVL_GROUP, REPLICA_INDEX, WRITER_LABEL)


class ThinSet(PodCliqueSet, frozen=True):
    """A PodCliqueSet. One that is not enrolled has no template: its annotations are immutable."""

    def __post_init__(self) -> None:
        metadata = self.metadata
        template = SetTemplate()
        if dialect.enrolls(self):
            cliques = tuple(_thin_clique(clique) for clique in self.cliques)
            template = structs.replace(self.spec.template, cliques=cliques)
        structs.force_setattr(self, "metadata", _identity(metadata, labels=None, annotations=metadata.annotations))
        structs.force_setattr(self, "spec", SetSpec(self.spec.replicas, _shared(template)))


class ThinDomain(ComputeDomain, frozen=True):
    """A ComputeDomain without its status. `owner` is the uid of the object that controls it; "" without one."""

    owner: str = ""

    def __post_init__(self) -> None:
        metadata, controller = self.metadata, self.metadata.controller
        labels = {key: intern(value) for key in _DOMAIN_LABELS if (value := metadata.label(key))}
        owner = controller.uid if controller is not None and controller.possible else self.owner
        structs.force_setattr(self, "owner", intern(owner))
        structs.force_setattr(self, "metadata", _identity(metadata, labels=labels or None, annotations=None))
        structs.force_setattr(self, "status", _NO_STATUS)


SETS: Resource[ThinSet] = Resource(grove.API_VERSION, "PodCliqueSet", "podcliquesets", namespaced=True, type=ThinSet)
DOMAINS: Resource[ThinDomain] = Resource(
    computedomains.API_VERSION, computedomains.KIND, "computedomains", namespaced=True, type=ThinDomain
)
CONFIG_MAPS: Resource[DomainsConfigMap] = Resource(
    "v1",
    "ConfigMap",
    "configmaps",
    namespaced=True,
    type=DomainsConfigMap,
    unbounded="the controllers write this one ConfigMap, and parse_capacity limits its text",
)


def _identity(
    metadata: MnnvlMetadata, *, labels: dict[str, str] | None, annotations: dict[str, str] | None
) -> MnnvlMetadata:
    return MnnvlMetadata(
        name=metadata.name,
        namespace=intern(metadata.namespace),
        uid=metadata.uid,
        creation_timestamp=intern(metadata.creation_timestamp),
        deletion_timestamp=metadata.deletion_timestamp,
        labels=labels,
        annotations=annotations,
        oversized=metadata.oversized,
    )


def _thin_clique(clique: CliqueTemplate) -> CliqueTemplate:
    spec = clique.spec.pod_spec
    thin = PodSpec(_thin_containers(spec.containers), _thin_containers(spec.init_containers), spec.resource_claims)
    reduced = CliqueSpec(clique.spec.replicas, _shared(thin))
    return CliqueTemplate(clique.name, clique.annotations, reduced, clique.resource_sharing)


def _thin_containers(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    found = tuple(
        Container("", ContainerResources(_extended(resources.requests), _extended(resources.limits), resources.claims))
        for container in containers or ()
        if (resources := container.resources) is not None
    )
    return found or None


def _extended(quantities: Quantities | None) -> Quantities | None:
    """Return the extended resources: their names have a slash, as have those that count as GPUs."""
    return {name: quantity for name, quantity in (quantities or {}).items() if "/" in name} or None


def _shared(value: T) -> T:
    """Return an equal value, stored once for all equal ones: sets are made from few templates."""
    if held_bytes(value) > MAX_HELD_BYTES:
        return value
    text = msgspec.json.encode(value)
    shared: T = _DEDUPLICATED.get_or_create(text, lambda: value)
    return shared
