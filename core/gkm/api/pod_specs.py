"""The fields of a pod specification (core/v1) that show which containers request GPUs, and by which claims."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

Quantities = dict[str, str | int | float]
"""Quantities by resource name. The API server stores strings; a custom resource may hold numbers."""


class NamedClaim(Struct, frozen=True):
    """A claim of the pod that a container uses, by the name of its entry in `resourceClaims`."""

    name: str


class ContainerResources(Struct, frozen=True):
    """The requests, limits and claims of a container."""

    requests: Quantities | None = None
    limits: Quantities | None = None
    claims: tuple[NamedClaim, ...] | None = None


class Container(Struct, frozen=True):
    """A container or init container of a pod, reduced to its name and resources."""

    name: str = ""
    resources: ContainerResources | None = None


class PodClaim(Struct, frozen=True, rename="camel"):
    """An entry of a pod's `resourceClaims`: it names a template or a claim."""

    name: str
    resource_claim_template_name: str | None = None
    resource_claim_name: str | None = None


_Containers = Annotated[tuple[Container, ...], Meta(max_length=4096)]


class PodSpec(Struct, frozen=True, rename="camel"):
    """A pod specification, reduced to its containers and claims."""

    containers: _Containers | None = None
    init_containers: _Containers | None = None
    resource_claims: Annotated[tuple[PodClaim, ...], Meta(max_length=256)] | None = None

    @property
    def claims(self) -> tuple[PodClaim, ...]:
        """Return the claims of the pod."""
        return self.resource_claims or ()

    def each_container(self) -> Iterator[tuple[str, int, Container]]:
        """Yield (field, index, container) of all containers of the pod, init containers first."""
        for name, containers in (("initContainers", self.init_containers), ("containers", self.containers)):
            for index, container in enumerate(containers or ()):
                yield name, index, container
