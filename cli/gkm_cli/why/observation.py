"""Read the objects between the volumes of pods and their kernels, each once."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

from gkm.api.caches import Cache
from gkm.api.features import INSTALL
from gkm.api.installation import CSI, DRIVER, NAMESPACE
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    CSI_DRIVERS,
    CSI_NODES,
    DAEMON_SETS,
    GKMCACHENODES,
    GKMCACHES,
    Json,
    Resource,
)

from gkm_cli.clusters.reads import Unreadable, get, listed
from gkm_cli.inputs.pods import RegisteredDrivers
from gkm_cli.why.facts import CacheName, EventFacts, Facts, KubeletSummary, PodFacts, ReadResult, member_of
from gkm_cli.why.image_volumes import members
from gkm_cli.why.outcomes import kubectl

T = TypeVar("T")
PODS = Resource("v1", "Pod", "pods", namespaced=True, type=PodFacts)
CSINODES = CSI_NODES.of(RegisteredDrivers)
EVENTS = Resource("v1", "Event", "events", namespaced=True, type=EventFacts)
_NAMES = ("cacheName", "clusterCacheName", "csi.gkm.io/GKMCache")
_MODE = "GKM_CAPTURE_MODE"
_MODES = ("auto", "request", "off")


@dataclass(frozen=True, slots=True)
class Observation:
    """Reads the objects of a cluster that the links of several pods need, each once."""

    api: Api
    _known: dict[Hashable, ReadResult[Any]] = field(default_factory=dict)

    def facts(self, pod: PodFacts) -> list[Facts]:
        """Return the facts by which `gkm why` judges a pod: one Facts for each volume of the CSI driver of GKM."""
        volumes = [volume for volume in pod.spec.volumes or () if volume.csi and volume.csi.driver == DRIVER]
        if not volumes:
            return []
        node, driver = pod.spec.node_name, self._get(CSI_DRIVERS, DRIVER)
        shared = Facts(
            pod=pod,
            volume=volumes[0],
            has_driver=driver,
            csi_node=self._get(CSINODES, node) if node else ReadResult(),
            events=self._once(("events", pod.metadata.uid), lambda: _failed_mounts(self.api, pod)),
        )
        return [self._completed(replace(shared, volume=volume)) for volume in volumes]

    def image_facts(self, pod: PodFacts) -> list[Facts]:
        """Return the facts by which `gkm why` judges a pod: one Facts for each image volume that the webhook added."""
        volumes = {volume.name: volume for volume in pod.spec.volumes or ()}
        return [
            Facts(pod=pod, volume=volumes[volume], cache_name=name, cache=self._cache(name))
            for volume, name in members(pod)
        ]

    def _cache(self, name: CacheName) -> ReadResult[Any]:
        resource: Resource[Any] = CLUSTERGKMCACHES if name.namespace is None else GKMCACHES
        return self._get(resource, name.name, name.namespace)

    def _completed(self, facts: Facts) -> Facts:
        if facts.depends_on_mode:
            facts = replace(facts, capture_mode=self._once("mode", lambda: _capture_mode(self.api)))
        node = facts.pod.spec.node_name
        if facts.is_private and facts.pod.status.phase == "Running":
            summary = self._once(("summary", node), lambda: _summary(self.api, node))
            facts = replace(facts, layer_bytes=_layer_bytes(summary, facts))
        if facts.may_be_captured and node:
            facts = replace(facts, captures=self._get(GKMCACHENODES, node, facts.pod.metadata.namespace))
        return self._with_member(self._with_cache(facts))

    def _with_cache(self, facts: Facts) -> Facts:
        """Return the facts with the cache that the volume names, and the report of the pod's node about it."""
        name, node = cache_name(facts.attributes, facts.pod.metadata.namespace), facts.pod.spec.node_name
        if name is None:
            return facts
        where = name.namespace
        reports: Resource[Any] = CLUSTERGKMCACHENODES if where is None else GKMCACHENODES
        report = self._get(reports, node, where) if node else ReadResult()
        return replace(facts, cache_name=name, cache=self._cache(name), node=report)

    def _with_member(self, facts: Facts) -> Facts:
        """Return the facts about the member of the family that the volume names. Caches of no family are not listed."""
        name, report = facts.cache_name, facts.node.found
        on_node = report.status.caches if report else {}
        missing = facts.cache.found is None and facts.cache.unreadable is None
        if name is None or not (missing or any(each.chosen for each in on_node.values())):
            return facts
        caches = self._once(("caches", name.namespace), lambda: _caches(self.api, name.namespace))
        if missing and caches.unreadable is not None:
            return replace(facts, cache=ReadResult(unreadable=caches.unreadable))
        member = member_of(name.name, caches.found or (), on_node, facts.pod.metadata)
        if member is None or member.metadata.name == name.name:
            return facts
        chosen = CacheName(name.namespace, member.metadata.name)
        return replace(facts, cache_name=chosen, family=name.name, cache=ReadResult(member))

    def _get(self, resource: Resource[T], name: str, namespace: str | None = None) -> ReadResult[T]:
        return self._once((resource.plural, namespace, name), lambda: get(self.api, resource, name, namespace))

    def _once(self, key: Hashable, read: Callable[[], T | None]) -> ReadResult[T]:
        if key not in self._known:
            try:
                self._known[key] = ReadResult(read())
            except Unreadable as failure:
                self._known[key] = ReadResult(unreadable=failure)
        return self._known[key]


def _summary(api: Api, node: str) -> KubeletSummary:
    try:
        return api.discover(f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary", KubeletSummary)
    except ApiError as error:
        # Without a next step: the right get nodes/proxy also lets its holder run programs in every pod (why.md).
        raise Unreadable(f"kubelet of {node} does not report the use of the volume: {error.message}", "") from error


def _layer_bytes(summary: ReadResult[KubeletSummary], facts: Facts) -> ReadResult[int]:
    if summary.found is None:
        return ReadResult(unreadable=summary.unreadable)
    return ReadResult(summary.found.used_bytes(facts.pod.metadata.uid, facts.volume.name))


def _caches(api: Api, namespace: str | None) -> list[Cache]:
    if namespace is None:
        return [*listed(api, CLUSTERGKMCACHES, ListSelector())[0]]
    return [*listed(api, GKMCACHES, ListSelector(namespace=namespace))[0]]


def _capture_mode(api: Api) -> str:
    """Return the mode of capture that the CSI driver runs in, which the chart passes to it; `request` without one."""
    driver = get(api, DAEMON_SETS, CSI, NAMESPACE)
    if driver is None:
        raise Unreadable(f"there is no DaemonSet {CSI} in {NAMESPACE}", INSTALL)
    mode = _variable(driver, _MODE)
    if mode not in _MODES:
        shown = kubectl("get", "daemonset", CSI, "-n", NAMESPACE, "-o", "yaml")
        raise Unreadable(f"the DaemonSet {CSI} does not state {_MODE}", f"{shown} shows it")
    return mode


def _variable(driver: Json, name: str) -> str:
    try:
        containers = driver["spec"]["template"]["spec"]["containers"]
        given = [one.get("value", "") for each in containers for one in each.get("env") or () if one["name"] == name]
    except (KeyError, TypeError, AttributeError):
        return ""
    return str(given[-1]) if given else "request"


def cache_name(attributes: dict[str, str], namespace: str) -> CacheName | None:
    """Return the cache that volume attributes name, None if they name no cache, several, or one of another namespace.

    gkm-csi refuses all of these (docs/features/volumes.md, "Attributes").
    """
    named = [key for key in _NAMES if key in attributes]
    if len(named) != 1:
        return None
    given: str | None = attributes.get("cacheNamespace", namespace)
    if named == ["clusterCacheName"]:
        given = None
    elif named == ["csi.gkm.io/GKMCache"]:
        given = attributes.get("csi.gkm.io/namespace")
    return CacheName(given, attributes[named[0]]) if given in (None, namespace) else None


def _failed_mounts(api: Api, pod: PodFacts) -> tuple[EventFacts, ...]:
    about = f"involvedObject.uid={pod.metadata.uid},reason=FailedMount"
    found, _ = listed(api, EVENTS, ListSelector(namespace=pod.metadata.namespace, fields=about))
    return tuple(sorted(found, key=lambda event: event.last_timestamp or event.event_time or "", reverse=True))
