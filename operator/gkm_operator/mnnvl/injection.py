"""Adds the claim of a ComputeDomain to a pod specification, as a JSON patch (RFC 6902). Pure and idempotent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gkm.api.computedomains import CHANNEL_CLASS
from gkm.api.pod_specs import PodClaim, PodSpec

from gkm_operator.mnnvl.gpu_requests import ContainerLocation, DeviceClasses, GPURequests, no_device_classes

CLAIM = "mnnvl-claim"
GROUP_CLAIM = "compute-domain-channel"
"""Name of the claim in the pods of a TaskGroup, as in OSMO."""

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChannelClaim:
    """A claim for a ComputeDomain's channel to add to a pod: its name, and the name of its ResourceClaimTemplate."""

    name: str
    template: str


@dataclass(frozen=True, slots=True)
class Injection:
    """The patch of a pod, and why a pod that requests GPUs gets no claim ("" if it gets one or requests no GPUs)."""

    operations: Sequence[Operation] = ()
    skipped: str = ""


def inject(
    spec: PodSpec,
    template: str,
    at: str,
    gpus: GPURequests,
    classes: DeviceClasses = no_device_classes,
    *,
    everywhere: bool = False,
) -> Injection:
    """Return the patch that adds a domain's claim to the containers that request GPUs, or to all with `everywhere`."""
    every = [ContainerLocation(field, index) for field, index, _ in spec.each_container()] if everywhere else []
    locations = every or gpus.containers(spec, classes)
    return inject_into(locations, spec, ChannelClaim(CLAIM, template), at, classes)


def inject_into(
    locations: Sequence[ContainerLocation], spec: PodSpec, claim: ChannelClaim, at: str, classes: DeviceClasses
) -> Injection:
    """Return the patch that adds a channel claim to these containers of a pod.

    `at` is the JSON pointer of the pod specification. A claim of the user is never replaced, and a pod with its own
    channel, or with a channel of the other label, gets no second one: it could not be scheduled.
    """
    if not locations:
        return Injection()
    if skipped := own_claim(spec.claims, claim.template, classes, claim.name):
        return Injection(skipped=skipped)
    operations: list[Operation] = []
    if _named(spec.claims, claim.name) is None:
        value = {"name": claim.name, "resourceClaimTemplateName": claim.template}
        operations.append(_append(f"{at}/resourceClaims", value, spec.resource_claims is None))
    for location in locations:
        operations.extend(_container_operations(spec, location, claim.name, at))
    return Injection(operations)


def own_claim(
    claims: Sequence[PodClaim], template: str, classes: DeviceClasses = no_device_classes, name: str = CLAIM
) -> str:
    """Return why a pod must not get GKM's channel claim, "" if it may get it or has it already."""
    present = _named(claims, name)
    if present is not None:
        is_ours = present.resource_claim_template_name == template
        return "" if is_ours else f"the pod has its own claim {name!r}"
    # The template of a claim that was just injected may not exist yet, so its device class would not be found.
    ours = (CLAIM, GROUP_CLAIM)
    own = next((claim.name for claim in claims if claim.name in ours or CHANNEL_CLASS in classes(claim)), "")
    return f"its claim {own!r} is a channel to another ComputeDomain" if own else ""


def _named(claims: Iterable[PodClaim], name: str) -> PodClaim | None:
    return next((claim for claim in claims if claim.name == name), None)


def _container_operations(spec: PodSpec, location: ContainerLocation, name: str, at: str) -> Iterable[Operation]:
    containers = spec.containers if location.field == "containers" else spec.init_containers
    resources = (containers or ())[location.index].resources
    at = f"{at}/{location.field}/{location.index}/resources"
    if resources is None:
        yield {"op": "add", "path": at, "value": {"claims": [{"name": name}]}}
    elif all(claim.name != name for claim in resources.claims or ()):
        yield _append(f"{at}/claims", {"name": name}, resources.claims is None)


def _append(path: str, value: object, is_new: bool) -> Operation:  # noqa: FBT001 -- one private caller's fact
    """Return the operation that appends to a list, which is absent or null if it `is_new`."""
    return (
        {"op": "add", "path": path, "value": [value]} if is_new else {"op": "add", "path": f"{path}/-", "value": value}
    )
