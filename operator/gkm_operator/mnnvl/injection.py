"""Adds the claim of a ComputeDomain to a pod specification, as a JSON patch (RFC 6902). Pure and idempotent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gkm.api.computedomains import CHANNEL_CLASS
from gkm.api.pod_specs import PodClaim, PodSpec

from gkm_operator.mnnvl.gpu_requests import ContainerLocation, DeviceClasses, GPURequests, no_device_classes

CLAIM = "mnnvl-claim"

Operation = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Injection:
    """The patch, and the reason why a pod that requests GPUs gets no claim ("" if it does)."""

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
    """Return the patch that adds the claim to the containers that request GPUs, or to all of them, `everywhere`.

    `template` is the name of the ResourceClaimTemplate, `at` the JSON pointer of the pod specification. A claim of the
    user is never replaced, and a pod with a channel of its own gets no second one: it could not be scheduled.
    """
    every = [ContainerLocation(field, index) for field, index, _ in spec.each_container()] if everywhere else []
    locations = every or gpus.containers(spec, classes)
    if not locations:
        return Injection()
    if skipped := own_claim(spec.claims, template, classes):
        return Injection(skipped=skipped)
    operations: list[Operation] = []
    if _injected(spec.claims) is None:
        claim = {"name": CLAIM, "resourceClaimTemplateName": template}
        operations.append(_append(f"{at}/resourceClaims", claim, spec.resource_claims is None))
    for location in locations:
        operations.extend(_container_operations(spec, location, at))
    return Injection(operations)


def own_claim(claims: Sequence[PodClaim], template: str, classes: DeviceClasses = no_device_classes) -> str:
    """Return why a pod with these claims gets none from GKM, "" if it gets one or has it."""
    present = _injected(claims)
    if present is not None:
        is_ours = present.resource_claim_template_name == template
        return "" if is_ours else f"the pod has a claim {CLAIM!r} of its own"
    own = next((claim.name for claim in claims if CHANNEL_CLASS in classes(claim)), "")
    return f"its claim {own!r} is a channel to another ComputeDomain" if own else ""


def _injected(claims: Iterable[PodClaim]) -> PodClaim | None:
    """Return the claim with the name that GKM gives to its claims."""
    return next((claim for claim in claims if claim.name == CLAIM), None)


def _container_operations(spec: PodSpec, location: ContainerLocation, at: str) -> Iterable[Operation]:
    containers = spec.containers if location.field == "containers" else spec.init_containers
    resources = (containers or ())[location.index].resources
    if resources is None:
        yield {
            "op": "add",
            "path": f"{at}/{location.field}/{location.index}/resources",
            "value": {"claims": [{"name": CLAIM}]},
        }
        return
    claims = resources.claims
    if any(claim.name == CLAIM for claim in claims or ()):
        return
    yield _append(f"{at}/{location.field}/{location.index}/resources/claims", {"name": CLAIM}, claims is None)


def _append(path: str, value: object, is_new: bool) -> Operation:  # noqa: FBT001 -- one private caller's fact
    """Return the operation that appends to a list, which is absent or null if it `is_new`."""
    return (
        {"op": "add", "path": path, "value": [value]} if is_new else {"op": "add", "path": f"{path}/-", "value": value}
    )
