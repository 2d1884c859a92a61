"""Read what the links need: the pod, and for each of its volumes the objects on the way to its kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

from gkm.api.installation import DRIVER
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    CSI_DRIVERS,
    CSI_NODES,
    GKMCACHENODES,
    GKMCACHES,
    Resource,
)

from gkm_cli.clusters.reads import Unreadable, get, listed
from gkm_cli.output import CommandFailed
from gkm_cli.why.facts import CacheName, EventFacts, Facts, KubeletSummary, NodeDrivers, PodFacts, ReadResult

T = TypeVar("T")

PODS = Resource("v1", "Pod", "pods", namespaced=True, type=PodFacts)
CSINODES = CSI_NODES.of(NodeDrivers)
EVENTS = Resource("v1", "Event", "events", namespaced=True, type=EventFacts)
_NAMES = ("cacheName", "clusterCacheName", "csi.gkm.io/GKMCache")


def observe(api: Api, name: str, namespace: str) -> tuple[PodFacts, list[Facts]]:
    """Return a pod, and the facts about each of its volumes of GKM.

    Raises:
        CommandFailed: there is no such pod.
        Unreadable: the pod cannot be read.
    """
    pod = get(api, PODS, name, namespace)
    if pod is None:
        raise CommandFailed(f"there is no pod {name} in the namespace {namespace}; name its namespace with -n")
    volumes = [volume for volume in pod.spec.volumes or () if volume.csi and volume.csi.driver == DRIVER]
    if not volumes:
        return pod, []
    has_driver: ReadResult[object] = _observed(lambda: get(api, CSI_DRIVERS, DRIVER))
    csi_node = _observed(lambda: get(api, CSINODES, pod.spec.node_name) if pod.spec.node_name else None)
    events = _observed(lambda: _failed_mounts(api, pod))
    facts = [
        Facts(pod=pod, volume=volume, has_driver=has_driver, csi_node=csi_node, events=events) for volume in volumes
    ]
    summary: ReadResult[KubeletSummary] = ReadResult()
    if pod.status.phase == "Running" and any(each.is_private for each in facts):
        summary = _observed(lambda: _summary(api, pod.spec.node_name))
    return pod, [_with_cache(api, replace(each, layer_bytes=_layer_bytes(summary, each))) for each in facts]


def _summary(api: Api, node: str) -> KubeletSummary:
    try:
        return api.discover(f"/api/v1/nodes/{quote(node, safe='')}/proxy/stats/summary", KubeletSummary)
    except ApiError as error:
        # Without a next step: the right get nodes/proxy also lets its holder run programs in every pod (why.md).
        raise Unreadable(f"kubelet of {node} does not report it: {error.message}", "") from error


def _layer_bytes(summary: ReadResult[KubeletSummary], facts: Facts) -> ReadResult[int]:
    if summary.found is None:
        return ReadResult(unreadable=summary.unreadable)
    return ReadResult(summary.found.used_bytes(facts.pod.metadata.uid, facts.volume.name))


def _with_cache(api: Api, facts: Facts) -> Facts:
    """Return the facts with the cache that the volume names, and the report of the pod's node about it."""
    name, node = cache_name(facts.attributes, facts.pod.metadata.namespace), facts.pod.spec.node_name
    if name is None:
        return facts
    if name.namespace is None:
        return replace(
            facts,
            cache_name=name,
            cache=_observed(lambda: get(api, CLUSTERGKMCACHES, name.name)),
            node=_observed(lambda: get(api, CLUSTERGKMCACHENODES, node) if node else None),
        )
    return replace(
        facts,
        cache_name=name,
        cache=_observed(lambda: get(api, GKMCACHES, name.name, name.namespace)),
        node=_observed(lambda: get(api, GKMCACHENODES, node, name.namespace) if node else None),
    )


def cache_name(attributes: dict[str, str], namespace: str) -> CacheName | None:
    """Return the cache that volume attributes name, None if they name none, several, or one of another namespace.

    gkm-csi refuses all of these (docs/design/volumes.md, "Attributes").
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


def _observed(read: Callable[[], T | None]) -> ReadResult[T]:
    try:
        return ReadResult(read())
    except Unreadable as failure:
        return ReadResult(unreadable=failure)
