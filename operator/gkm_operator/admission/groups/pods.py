"""Decisions about pods with the label gkm.io/task-group: the claim of their group's ComputeDomain, and its placement.

A pod is refused only while its group has no objects yet, or none any more. A cluster that cannot be read refuses none.
"""

from gkm.api.network_settings import Network
from gkm.api.task_groups import GROUP_LABEL, USER_CONTAINER_LABEL
from gkm.hoststate.names import quoted
from msgspec import Struct

from gkm_operator.admission.domains.placement import place
from gkm_operator.admission.domains.pods import tolerant
from gkm_operator.admission.domains.requests import DomainRequest, ReviewedPodSpec
from gkm_operator.admission.domains.view import View
from gkm_operator.admission.groups.objects import TASK_GROUPS
from gkm_operator.admission.review import ADMITTED, ReviewResponse, refused
from gkm_operator.mnnvl.gpu_requests import ContainerLocation, GPURequests
from gkm_operator.mnnvl.injection import GROUP_CLAIM, ChannelClaim, inject_into

GROUP_SECONDS = 1.0
"""How long a TaskGroup is remembered: all its pods are created within a moment."""


class TaskPodMetadata(Struct, frozen=True):
    """The metadata of a pod."""

    labels: dict[str, str] | None = None


class ReviewedTaskPod(Struct, frozen=True):
    """A pod."""

    metadata: TaskPodMetadata
    spec: ReviewedPodSpec = ReviewedPodSpec()

    def label(self, key: str) -> str:
        """Return a label; "" without it."""
        return (self.metadata.labels or {}).get(key, "")


class TaskPodReview:
    """Adds the claim of the group's ComputeDomain to the containers that request GPUs, or to the one that is named."""

    def __init__(self, view: View, settings: Network) -> None:
        self._view = view
        self._settings = settings
        self._gpus = GPURequests(settings)

    def decide(self, request: DomainRequest[ReviewedTaskPod]) -> ReviewResponse:
        """Return the response; raise ViewUnavailable if the group cannot be read."""
        pod = request.object
        name = pod.label(GROUP_LABEL)
        if request.operation != "CREATE" or not name:
            return ADMITTED
        group = self._view.object(TASK_GROUPS, request.namespace, name, GROUP_SECONDS)
        if group is None:
            return refused(f"TaskGroup {quoted(name)} does not exist here; create it before its pods")
        if group.ended:
            return refused(f"TaskGroup {quoted(name)} has ended, and its objects go: create another one")
        if not group.planned:
            return refused(f"the objects of TaskGroup {quoted(name)} are not planned yet; try again in a moment")
        return self._join(pod, request.namespace, group.claim_template) if group.claim_template else ADMITTED

    def _join(self, pod: ReviewedTaskPod, namespace: str, template: str) -> ReviewResponse:
        unread: list[str] = []
        classes = tolerant(self._view.device_classes(namespace, strict=True), unread)
        container = pod.label(USER_CONTAINER_LABEL)
        locations = _named(pod, container) if container else self._gpus.containers(pod.spec, classes)
        if container and not locations:
            return _warned(f"the pod has no container {quoted(container)}, so none gets the claim {GROUP_CLAIM!r}")
        if not locations:
            return _warned(*unread)
        injection = inject_into(locations, pod.spec, ChannelClaim(GROUP_CLAIM, template), "/spec", classes)
        if injection.skipped:
            return _warned(f"the pod does not join the ComputeDomain of its TaskGroup: {injection.skipped}")
        placed = place(pod.spec, pod.label(GROUP_LABEL), "/spec", self._settings, GROUP_LABEL)
        return ReviewResponse(allowed=True, warnings=tuple(unread), patch=(*injection.operations, *placed))


def _named(pod: ReviewedTaskPod, name: str) -> list[ContainerLocation]:
    return [ContainerLocation(at, index) for at, index, each in pod.spec.each_container() if each.name == name]


def _warned(*warnings: str) -> ReviewResponse:
    return ReviewResponse(allowed=True, warnings=warnings)
