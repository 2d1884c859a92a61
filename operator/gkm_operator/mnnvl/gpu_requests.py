"""Find the containers that request GPUs: by a resource, or by a claim of a device class. Pure.

Grove adds the claims of `resourceSharing` to pods, and never to PodCliques, so no specification of a PodClique shows
them: gpu_sharing finds from the PodCliqueSet which pods get claims for GPUs.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from gkm.api.grove import CliqueTemplate, PodCliqueSet, ScalingGroupTemplate, SharedClaim
from gkm.api.network_settings import Network
from gkm.api.pod_specs import Container, PodClaim, PodSpec

DeviceClasses = Callable[[PodClaim], Iterable[str]]
"""Returns the device classes that a claim of a pod requests; empty for an unknown claim."""


SharesGPUs = Callable[[CliqueTemplate, ScalingGroupTemplate | None], bool]
"""Returns whether all containers of a clique's pods get a shared claim for GPUs.

The clique is in the scaling group, or in none.
"""


def gpu_sharing(
    pod_clique_set: PodCliqueSet, is_gpu: Callable[[Iterable[str]], bool], classes: DeviceClasses
) -> SharesGPUs:
    """Return which pods of a PodCliqueSet share ResourceClaims for GPUs.

    `is_gpu` returns whether device classes are for GPUs, `classes` the classes of a claim template. It raises the
    errors of `classes`.
    """
    template, namespace = pod_clique_set.spec.template, pod_clique_set.metadata.namespace
    own = {claim.name: claim.template_spec.spec for claim in template.resource_claim_templates or ()}

    def is_for_gpus(claim: SharedClaim) -> bool:
        if not claim.namespace and claim.name in own:
            return is_gpu(own[claim.name].device_classes())
        return not is_elsewhere(claim, namespace) and is_gpu(classes(PodClaim(claim.name, claim.name)))

    def reach(sharing: Iterable[SharedClaim] | None) -> Callable[..., bool]:
        return _reach(claim for claim in sharing or () if is_for_gpus(claim))

    of_set = reach(template.resource_sharing)
    groups = {group.name: reach(group.resource_sharing) for group in pod_clique_set.scaling_groups}
    cliques = {clique.name for clique in pod_clique_set.cliques if any(map(is_for_gpus, clique.resource_sharing or ()))}

    def shares(clique: CliqueTemplate, scaling_group: ScalingGroupTemplate | None) -> bool:
        if scaling_group is None:
            return clique.name in cliques or of_set(clique.name)
        within = groups[scaling_group.name](clique.name)
        return clique.name in cliques or within or of_set(clique.name, scaling_group.name)

    return shares


def is_elsewhere(claim: SharedClaim, namespace: str) -> bool:
    """Return whether a shared claim's template is in another namespace, which GKM does not read."""
    return claim.namespace not in {"", namespace}


def _reach(claims: Iterable[SharedClaim]) -> Callable[..., bool]:
    """Return whether claims reach one of some children. Asked together: hostile sets have many claims and children."""
    everything, names = False, set[str]()
    for claim in claims:
        if claim.filter is None:
            everything = True
        else:
            names.update(claim.filter.child_clique_names or (), claim.filter.child_scaling_group_names or ())
    return lambda *children: everything or not names.isdisjoint(children)


def no_device_classes(_claim: PodClaim) -> Iterable[str]:
    """Return no device classes: for callers that ignore claims."""
    return ()


@dataclass(frozen=True, slots=True)
class ContainerLocation:
    """Where a container is in a pod specification: the field that lists it, and its index there."""

    field: str
    index: int


@dataclass(frozen=True, slots=True)
class GPURequests:
    """Decides whether containers request GPUs, by the configured resources and device classes."""

    settings: Network
    device_classes: frozenset[str] = field(init=False)
    _names: frozenset[str] = field(init=False)
    _prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Split the configured resources into names and prefixes for fast checks."""
        resources = self.settings.gpu_resources
        object.__setattr__(self, "device_classes", frozenset(self.settings.gpu_device_classes))
        object.__setattr__(self, "_names", frozenset(resources))
        object.__setattr__(self, "_prefixes", tuple(glob[:-1] for glob in resources if glob.endswith("*")))

    def containers(self, spec: PodSpec, classes: DeviceClasses = no_device_classes) -> list[ContainerLocation]:
        """Return the containers and init containers that request GPUs.

        Looks only at claims that decide: the claims of containers that request no GPU by a resource.
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
        """Return whether any container of a pod requests GPUs; claims are only read if no resource decides."""
        by_resource = any(self._requests_resource(container) for _, _, container in spec.each_container())
        return by_resource or bool(self.containers(spec, classes))

    def any_resource(self, names: Iterable[str]) -> bool:
        """Return whether one of these names of extended resources is a configured GPU resource."""
        return any(self._is_of_gpus(name) for name in names)

    def any_gpu_class(self, classes: Iterable[str]) -> bool:
        """Return whether one of these device classes is a configured GPU class."""
        return not self.device_classes.isdisjoint(classes)

    def sharing(self, pod_clique_set: PodCliqueSet, classes: DeviceClasses = no_device_classes) -> SharesGPUs:
        """Return which pods of a PodCliqueSet get shared claims for GPUs from Grove."""
        return gpu_sharing(pod_clique_set, self.any_gpu_class, classes)

    def cliques(self, pod_clique_set: PodCliqueSet, classes: DeviceClasses = no_device_classes) -> frozenset[str]:
        """Return the names of the clique templates whose pods request GPUs, directly or by a shared claim."""
        shares = self.sharing(pod_clique_set, classes)
        return frozenset(
            clique.name for clique, scaling_group in pod_clique_set.memberships() if shares(clique, scaling_group)
        ).union(clique.name for clique in pod_clique_set.cliques if self.any(clique.spec.pod_spec, classes))

    def _requests_resource(self, container: Container) -> bool:
        resources = container.resources
        if resources is None:
            return False
        found = [item for each in (resources.limits, resources.requests) if each for item in each.items()]
        return any(self._is_of_gpus(name) and is_positive(quantity) for name, quantity in found)

    def _is_of_gpus(self, name: str) -> bool:
        return name in self._names or name.startswith(self._prefixes)


def _claims(container: Container) -> Iterator[str]:
    for claim in (container.resources.claims or ()) if container.resources else ():
        yield claim.name


def is_positive(quantity: str | float) -> bool:
    """Return whether a Kubernetes quantity is greater than zero."""
    number = str(quantity).lower().partition("e")[0]
    return not number.startswith("-") and any(digit in "123456789" for digit in number)
