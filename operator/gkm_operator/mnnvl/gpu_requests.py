"""Which containers of a pod specification request GPUs: by a resource, or by a claim of a device class."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from gkm.api.grove import PodCliqueSet
from gkm.api.network_settings import Network
from gkm.api.pod_specs import Container, PodClaim, PodSpec, Quantities

from gkm_operator.mnnvl.gpu_sharing import GPUSharing

DeviceClasses = Callable[[PodClaim], Iterable[str]]
"""Returns the device classes that a claim of a pod requests; none for a claim that is not known."""


def no_device_classes(_claim: PodClaim) -> Iterable[str]:
    """Return no device class."""
    return ()


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """The location of a container in a pod specification."""

    field: str
    index: int


@dataclass(frozen=True, slots=True)
class GPURequests:
    """The rule of one configuration; `device_classes` are those of GPUs."""

    settings: Network
    device_classes: frozenset[str] = field(init=False)
    _names: frozenset[str] = field(init=False)
    _prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Split the resources into names and prefixes: a hostile pod may have 100,000 resources."""
        resources = self.settings.gpu_resources
        object.__setattr__(self, "device_classes", frozenset(self.settings.gpu_device_classes))
        object.__setattr__(self, "_names", frozenset(resources))
        object.__setattr__(self, "_prefixes", tuple(glob[:-1] for glob in resources if glob.endswith("*")))

    def containers(self, spec: PodSpec, classes: DeviceClasses = no_device_classes) -> list[ContainerLocation]:
        """Return the locations of the containers and init containers that request GPUs.

        Looks only at claims that decide: those of containers that request no GPU by a resource.
        """
        locations = [
            (ContainerLocation(field, index), () if by_resource else tuple(_claims(container)), by_resource)
            for field, index, container in spec.each_container()
            for by_resource in (self._requests_resource(container),)
        ]
        deciding = frozenset(chain.from_iterable(claims for _, claims, _ in locations))
        gpu_claims = frozenset(
            claim.name for claim in spec.claims if claim.name in deciding and self.any_gpu_class(classes(claim))
        )
        return [
            location for location, claims, by_resource in locations if by_resource or not gpu_claims.isdisjoint(claims)
        ]

    def any(self, spec: PodSpec, classes: DeviceClasses = no_device_classes) -> bool:
        """Return whether a container requests GPUs; look at no claim if one does by a resource."""
        by_resource = any(self._requests_resource(container) for _, _, container in spec.each_container())
        return by_resource or bool(self.containers(spec, classes))

    def any_gpu_class(self, classes: Iterable[str]) -> bool:
        """Return whether one of these device classes is of GPUs."""
        return not self.device_classes.isdisjoint(classes)

    def sharing(self, pod_clique_set: PodCliqueSet, classes: DeviceClasses = no_device_classes) -> GPUSharing:
        """Return which pods of a set get claims for GPUs from Grove."""
        return GPUSharing(pod_clique_set, self.any_gpu_class, classes)

    def cliques(self, pod_clique_set: PodCliqueSet, classes: DeviceClasses = no_device_classes) -> frozenset[str]:
        """Return the names of the clique templates whose pods request GPUs, by themselves or by a shared claim."""
        sharing = self.sharing(pod_clique_set, classes)
        return frozenset(
            clique.name
            for clique, scaling_group in pod_clique_set.memberships()
            if sharing.reaches(clique, scaling_group)
        ).union(clique.name for clique in pod_clique_set.cliques if self.any(clique.spec.pod_spec, classes))

    def _requests_resource(self, container: Container) -> bool:
        resources = container.resources
        if resources is None:
            return False
        return any(self._is_gpu(quantities) for quantities in (resources.limits, resources.requests) if quantities)

    def _is_gpu(self, quantities: Quantities) -> bool:
        return any(
            (name in self._names or name.startswith(self._prefixes)) and _is_positive(quantity)
            for name, quantity in quantities.items()
        )


def _claims(container: Container) -> Iterator[str]:
    for claim in (container.resources.claims or ()) if container.resources else ():
        yield claim.name


def _is_positive(quantity: str | float) -> bool:
    """Return whether a quantity has a digit other than 0 before its exponent or suffix, and no minus sign."""
    number = str(quantity).lower().partition("e")[0]
    return not number.startswith("-") and any(digit in "123456789" for digit in number)
