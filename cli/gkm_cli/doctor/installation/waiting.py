"""Pods that wait for a volume of GKM: kubelet has not started a container of them. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from gkm.api.installation import DRIVER

from gkm_cli.doctor.findings import Finding, command, some
from gkm_cli.doctor.installation.objects import WaitingPod
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

_NAMED = {
    "cacheName": "GKMCache",
    "clusterCacheName": "ClusterGKMCache",
    "csi.gkm.io/GKMCache": "GKMCache",
}
_MOUNTING = ("", "ContainerCreating")
"""Reasons of a container that waits while kubelet mounts volumes. Images are pulled afterwards."""


def pods(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches for whose volume pods wait, by namespace."""
    found: dict[tuple[str, str], list[WaitingPod]] = defaultdict(list)
    for pod in with_volume(observed):
        if observed.is_settled(pod.metadata.creation_timestamp) and _waits(pod):
            found[pod.metadata.namespace, _cache_of(pod)].append(pod)
    for (namespace, cache), waiting in sorted(found.items()):
        first = min(waiting, key=lambda pod: pod.metadata.name)
        hint = f"{command('gkm', 'why', first.metadata.name, '-n', namespace)} names the link that is broken"
        detail = f"pods wait for a volume of {cache}: {some(pod.metadata.name for pod in waiting)}"
        yield problem("Namespace", namespace, detail, _why(first), hint)


def with_volume(observed: InstallationFacts) -> list[WaitingPod]:
    """Return the pods that are Pending and have a volume of GKM."""
    return [pod for pod in observed.waiting_pods if _attributes(pod) is not None]


def _attributes(pod: WaitingPod) -> Mapping[str, str] | None:
    volumes = (volume.csi for volume in pod.spec.volumes or () if volume.csi and volume.csi.driver == DRIVER)
    return next((csi.volume_attributes or {} for csi in volumes), None)


def _cache_of(pod: WaitingPod) -> str:
    attributes = _attributes(pod) or {}
    return next((f"{kind} {attributes[key]}" for key, kind in _NAMED.items() if key in attributes), "no cache")


def _waits(pod: WaitingPod) -> bool:
    """Return whether kubelet or the scheduler has not come to the containers; a pod that a gate holds is meant so."""
    if any(one.type == "PodScheduled" and one.reason == "SchedulingGated" for one in pod.status.conditions):
        return False
    states = [one.state.waiting for one in pod.status.container_statuses or ()]
    return all(state is not None and state.reason in _MOUNTING for state in states)


def _why(pod: WaitingPod) -> str:
    messages = (one.message for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False")
    return next(messages, "") or f"kubelet of {pod.spec.node_name or 'no node'} has not mounted the volume"
