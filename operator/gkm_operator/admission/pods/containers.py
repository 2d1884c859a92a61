"""Which containers of a pod get its cache. Pure."""

from gkm.api import pod_caches
from gkm.hoststate.names import quoted

from gkm_operator.admission.pods.objects import CachePod
from gkm_operator.admission.pods.wishes import Skipped
from gkm_operator.mnnvl.gpu_requests import ContainerLocation, GPURequests

KSERVE = "kserve-container"
"""The container of the model in the pods of an InferenceService, beside those of meshes and queues."""
MAX_CONTAINERS = 16


def chosen(pod: CachePod, name: str, gpus: GPURequests, skipped: list[Skipped]) -> list[int]:
    """Return the indices of the containers: the one with this name, or those that request GPUs, or the main one.

    Claims are not read, so those of any device class count where no container requests a GPU by a resource.
    """
    names = [each.name for each in pod.containers]
    if name:
        if found := [index for index, each in enumerate(names) if each == name]:
            return found[:1]
        skipped.append(Skipped(pod_caches.CONTAINER, f"the pod has no container {quoted(name)}"))
        return []
    found = _indices(gpus.containers(pod.spec)) or _indices(gpus.containers(pod.spec, lambda _: gpus.device_classes))
    if not found:
        found = [index for index, each in enumerate(names) if each == KSERVE] or list(range(len(names)))[:1]
    if more := found[MAX_CONTAINERS:]:
        skipped.append(Skipped("containers", f"{len(more)} more than {MAX_CONTAINERS}"))
    return found[:MAX_CONTAINERS]


def _indices(locations: list[ContainerLocation]) -> list[int]:
    return [each.index for each in locations if each.field == "containers"]
