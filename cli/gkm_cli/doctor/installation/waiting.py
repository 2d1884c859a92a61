"""Pods that wait for a volume of GKM: kubelet has not started a container of them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gkm.api.installation import DRIVER

from gkm_cli.doctor.findings import Finding, command, some
from gkm_cli.doctor.installation.objects import WaitingPod
from gkm_cli.doctor.installation.observation import check
from gkm_cli.doctor.installation.observed import InstallationFacts, problem
from gkm_cli.doctor.runner import Subject

_NAMED = {"cacheName": "GKMCache", "clusterCacheName": "ClusterGKMCache", "csi.gkm.io/GKMCache": "GKMCache"}
_MOUNTING = ("", "ContainerCreating", "PodInitializing")
"""Reasons of a container that waits while kubelet mounts volumes; the last one in a pod with init containers. Images
are pulled afterwards.
"""


class WaitingGroup(NamedTuple):
    """Pods of a namespace that wait for the volume of one cache, sorted by name."""

    namespace: str
    cache: str
    pods: list[WaitingPod]

    @property
    def why(self) -> str:
        """Return why the first of the pods waits, as far as its status tells."""
        pod = self.pods[0]
        messages = (one.message for one in pod.status.conditions if (one.type, one.status) == ("PodScheduled", "False"))
        return next(messages, "") or f"kubelet of {pod.spec.node_name or 'no node'} has not mounted the volume"

    @property
    def next(self) -> str:
        """Return the command of `gkm why` that names the broken link."""
        return command("gkm", "why", self.pods[0].metadata.name, "-n", self.namespace)


def with_volume(observed: InstallationFacts) -> list[WaitingPod]:
    """Return the pods that are Pending and have a volume of GKM."""
    return [pod for pod in observed.waiting_pods if _attributes(pod) is not None]


def _attributes(pod: WaitingPod) -> Mapping[str, str] | None:
    volumes = (volume.csi for volume in pod.spec.volumes or () if volume.csi and volume.csi.driver == DRIVER)
    return next((csi.volume_attributes or {} for csi in volumes), None)


_WITH_VOLUME = Subject("no pod with a volume of GKM is Pending", with_volume)


@check("caches/waiting-pods", "no pod waits for a volume", "waiting_pods", _WITH_VOLUME, cluster_wide=False)
def pods(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the caches for whose volume pods wait, by namespace."""
    for found in groups([pod for pod in with_volume(observed) if observed.is_settled(pod.metadata.creation_timestamp)]):
        detail = f"pods wait for a volume of {found.cache}: {some(pod.metadata.name for pod in found.pods)}"
        hint = f"{found.next} names the link that is broken"
        yield problem("Namespace", found.namespace, detail, found.why, hint)


def groups(found: Iterable[WaitingPod]) -> Iterator[WaitingGroup]:
    """Yield pods with a volume of GKM that wait for it, by namespace and cache."""
    by_cache: dict[tuple[str, str], list[WaitingPod]] = defaultdict(list)
    for pod in filter(_waits, found):
        by_cache[pod.metadata.namespace, _cache_of(pod)].append(pod)
    for (namespace, cache), waiting in sorted(by_cache.items()):
        yield WaitingGroup(namespace, cache, sorted(waiting, key=lambda pod: pod.metadata.name))


def _cache_of(pod: WaitingPod) -> str:
    attributes = _attributes(pod) or {}
    return next((f"{kind} {attributes[key]}" for key, kind in _NAMED.items() if key in attributes), "no cache")


def _waits(pod: WaitingPod) -> bool:
    """Return whether kubelet or the scheduler has not come to the containers; a pod that a gate holds is meant so."""
    if any(one.type == "PodScheduled" and one.reason == "SchedulingGated" for one in pod.status.conditions):
        return False
    statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    states = [one.state.waiting for one in statuses]
    return all(state is not None and state.reason in _MOUNTING for state in states)
