"""Decisions about pods with the label gkm.io/compute-domain, of any workload kind. Must never refuse a pod."""

import re

from gkm.api.mnnvl_metadata import DOMAIN_LABEL
from gkm.api.pod_specs import PodClaim

from gkm_operator.admission.domains.cluster_view import ReviewView, ViewUnavailable
from gkm_operator.admission.domains.patches import place
from gkm_operator.admission.domains.requests import DomainRequest, ReviewedPod
from gkm_operator.admission.review import ADMITTED, ReviewResponse, warned
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import MAX_NAME_LENGTH

# RFC 1123, section 2.1, as Kubernetes applies it to names of objects (a DNS subdomain).
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)


def review_pod(view: ReviewView, request: DomainRequest[ReviewedPod], *, gpus: GPURequests) -> ReviewResponse:
    """Add the claim of the ComputeDomain that the pod's label names to containers that request GPUs; always admit."""
    pod = request.object
    name = pod.metadata.label(DOMAIN_LABEL)
    if request.operation != "CREATE" or not name:
        return ADMITTED
    if len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        return warned(f"{DOMAIN_LABEL} is {name[:80]!r}, which no ComputeDomain can have as its name")
    unread: list[str] = []
    classes = tolerant(view.device_classes(request.namespace, strict=True), unread)
    if not gpus.any(pod.spec, classes):
        return warned(*unread)
    template = _template(view, request.namespace, name, enabled=gpus.settings.auto_mnnvl_enabled)
    if not template:
        return warned(f"no ComputeDomain {name} exists, and GKM does not create it: network.autoMNNVLEnabled is off")
    injection = inject(pod.spec, template, "/spec", gpus, classes)
    if injection.skipped:
        return warned(f"the pod does not join ComputeDomain {name}: {injection.skipped}")
    placed = place(pod.spec, name, "/spec", gpus.settings)
    return ReviewResponse(allowed=True, warnings=tuple(unread), patch=(*injection.operations, *placed))


def _template(view: ReviewView, namespace: str, name: str, *, enabled: bool) -> str:
    """Return the name of the claim template; "" if absent. GKM's templates have their domains' names."""
    try:
        found = view.cluster.compute_domain(namespace, name)
    except ViewUnavailable:
        return name
    if found is None:
        return name if enabled else ""
    return found.template or name


def tolerant(classes: DeviceClasses, unread: list[str]) -> DeviceClasses:
    """Return `classes` for a pod: for an unreadable claim it returns no classes, and adds one warning to `unread`."""

    def found(claim: PodClaim) -> tuple[str, ...]:
        try:
            return tuple(classes(claim))
        except ViewUnavailable as error:
            if not unread:
                unread.append(f"GKM did not see whether claim {claim.name[:80]!r} requests GPUs: {error}")
            return ()

    return found
