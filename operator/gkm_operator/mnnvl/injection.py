"""Adds the claim of a ComputeDomain to a pod specification, as a JSON patch (RFC 6902). Pure and idempotent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gkm.api.computedomains import CHANNEL_CLASS
from gkm.api.pod_specs import PodClaim, PodSpec

from gkm_operator.mnnvl.gpu_requests import ContainerPlace, DeviceClasses, GPURequests, no_device_classes

CLAIM = "mnnvl-claim"

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Injection:
    """The patch, and the reason why a pod that requests GPUs gets no claim ("" if it does)."""

    operations: Sequence[Operation] = ()
    skipped: str = ""


def inject(
    spec: PodSpec, template: str, at: str, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> Injection:
    """Return the patch that adds the claim to the containers that request GPUs.

    `template` is the name of the ResourceClaimTemplate, `at` the JSON pointer of the pod specification. A claim of the
    user is never replaced, and a pod with a channel of its own gets no second one: it could not be scheduled.
    """
    places = gpus.containers(spec, classes)
    if not places:
        return Injection()
    present = next((claim for claim in spec.claims if claim.name == CLAIM), None)
    if present is not None and present.resource_claim_template_name != template:
        return Injection(skipped=f"the pod has a claim {CLAIM!r} of its own")
    if present is None and (own := _own_channel(spec.claims, classes)):
        return Injection(skipped=f"its claim {own!r} is a channel to another ComputeDomain")
    operations: list[Operation] = []
    if present is None:
        claim = {"name": CLAIM, "resourceClaimTemplateName": template}
        operations.append(_append(f"{at}/resourceClaims", claim, spec.resource_claims is None))
    for place in places:
        operations.extend(_container_operations(spec, place, at))
    return Injection(operations)


def _own_channel(claims: Iterable[PodClaim], classes: DeviceClasses) -> str:
    return next((claim.name for claim in claims if CHANNEL_CLASS in classes(claim)), "")


def _container_operations(spec: PodSpec, place: ContainerPlace, at: str) -> Iterable[Operation]:
    containers = spec.containers if place.field == "containers" else spec.init_containers
    resources = (containers or ())[place.index].resources
    # A container without resources requests no GPU, so it has no place here.
    claims = resources.claims if resources else None
    if any(claim.name == CLAIM for claim in claims or ()):
        return
    yield _append(f"{at}/{place.field}/{place.index}/resources/claims", {"name": CLAIM}, claims is None)


def _append(path: str, value: object, is_new: bool) -> Operation:  # noqa: FBT001 -- one private caller's fact
    """Return the operation that appends to a list, which is absent or null if it `is_new`."""
    return (
        {"op": "add", "path": path, "value": [value]} if is_new else {"op": "add", "path": f"{path}/-", "value": value}
    )
