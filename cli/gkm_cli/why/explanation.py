"""The steps of `gkm why`: connect, read, walk, print, and choose the exit code.

Read the input of the links: the pod, and for each of its volumes the objects on the way to its kernels. A pod without a
volume of GKM has no label either, or one that the webhook did not see or could not use.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from gkm.api.caches import Cache
from gkm.api.features import Feature, install
from gkm.api.installation import DRIVER
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE, INJECTED, WEBHOOK
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
from msgspec import Struct

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.reads import Unreadable, get, listed
from gkm_cli.output import CommandFailed, NegativeResult, Output, line, show, table
from gkm_cli.progress import waiting
from gkm_cli.why.facts import (
    CacheName,
    EventFacts,
    Facts,
    KubeletSummary,
    NodeDrivers,
    PodFacts,
    ReadResult,
    member_of,
)
from gkm_cli.why.links import LinkResult, State, walk
from gkm_cli.why.outcomes import kubectl

_PREFIXES = ("pod/", "pods/", "po/")
T = TypeVar("T")
PODS = Resource("v1", "Pod", "pods", namespaced=True, type=PodFacts)
CSINODES = CSI_NODES.of(NodeDrivers)
EVENTS = Resource("v1", "Event", "events", namespaced=True, type=EventFacts)
_NAMES = ("cacheName", "clusterCacheName", "csi.gkm.io/GKMCache")
_BY_LABEL = "docs/how-to/caches-by-label.md"
MAX_REPORT = 32 << 10
"""Characters. The reports of the webhook are shorter; the annotations of a pod may have 256 KiB."""


def explain(name: str, cluster: ClusterOptions, namespace: str, output: Output) -> None:
    """Print every link, and the first broken one with what to do.

    Raises:
        CommandFailed: there is no such pod, or no link is broken and some could not be checked.
        NegativeResult: a link is broken.
    """
    connection = connected(cluster, namespace)
    where = namespace or connection.namespace
    plain = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    with waiting(f"reading pod {plain}"):
        pod, facts = observe(connection.api, plain, where)
    steps = [step for each in facts for step in walk(each)] or [no_volume(pod)]
    show([_entry(step) for step in steps], output, lambda: _print_steps(steps))
    _conclude(steps)


def _entry(step: LinkResult) -> dict[str, Any]:
    return {
        "check": step.link,
        "ok": step.state is State.OK,
        "state": step.state.value,
        "volume": step.volume,
        "detail": step.detail,
        "hint": step.hint,
    }


def _print_steps(steps: Sequence[LinkResult]) -> None:
    several = len({step.volume for step in steps}) > 1
    rows = [(step.volume, step.link, step.state.value, step.detail if step.state is State.OK else "") for step in steps]
    columns = ("volume", "link", "state", "detail")
    table(columns if several else columns[1:], rows if several else [row[1:] for row in rows])
    # One object that cannot be read leaves several links unchecked.
    for (state, detail, hint), links in _grouped(steps).items():
        line("")
        line(f"{state.value}: {', '.join(links)}: {detail}")
        line(f"  next: {hint}")
    if all(step.state is State.OK for step in steps):
        line("")
        line("every link holds")


def _grouped(steps: Sequence[LinkResult]) -> dict[tuple[State, str, str], list[str]]:
    """Return the links with a next step, by the text that is printed about them."""
    found: dict[tuple[State, str, str], list[str]] = {}
    for step in steps:
        links = found.setdefault((step.state, step.detail, step.hint), []) if step.hint else []
        if step.link not in links:
            links.append(step.link)
    return found


def _conclude(steps: Sequence[LinkResult]) -> None:
    if any(step.state is State.BROKEN for step in steps):
        raise NegativeResult
    unknown = [step.link for step in steps if step.state is State.NOT_CHECKED]
    if unknown:
        raise CommandFailed(f"not every link could be checked: {', '.join(unknown)}; see their next steps")


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
    read = (_with_cache(api, replace(each, layer_bytes=_layer_bytes(summary, each))) for each in facts)
    return pod, [_with_member(api, each) for each in read]


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


def _with_member(api: Api, facts: Facts) -> Facts:
    """Return the facts about the member of the family that the volume names. Caches of no family are not listed."""
    name, report = facts.cache_name, facts.node.found
    on_node = report.status.caches if report else {}
    missing = facts.cache.found is None and facts.cache.unreadable is None
    if name is None or not (missing or any(each.chosen for each in on_node.values())):
        return facts
    caches: ReadResult[list[Cache]] = _observed(lambda: _caches(api, name.namespace))
    member = member_of(name.name, caches.found or (), on_node, facts.pod.metadata)
    if member is None or member.metadata.name == name.name:
        return facts
    chosen = CacheName(name.namespace, member.metadata.name)
    return replace(facts, cache_name=chosen, family=name.name, cache=ReadResult(member))


def _caches(api: Api, namespace: str | None) -> list[Cache]:
    if namespace is None:
        return [*listed(api, CLUSTERGKMCACHES, ListSelector())[0]]
    return [*listed(api, GKMCACHES, ListSelector(namespace=namespace))[0]]


def cache_name(attributes: dict[str, str], namespace: str) -> CacheName | None:
    """Return the cache that volume attributes name, None if they name none, several, or another namespace's.

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


def _observed(read: Callable[[], T | None]) -> ReadResult[T]:
    try:
        return ReadResult(read())
    except Unreadable as failure:
        return ReadResult(unreadable=failure)


class SkippedPart(Struct, frozen=True):
    """A part that the webhook left out, and why."""

    what: str = ""
    why: str = ""


class InjectionReport(Struct, frozen=True):
    """The parts of the webhook's report that were left out."""

    skipped: tuple[SkippedPart, ...] = ()


def no_volume(pod: PodFacts) -> LinkResult:
    """Return the step of a pod without a volume of GKM."""
    labels = [key for key in (CACHE, CLUSTER_CACHE) if pod.metadata.labels.get(key)]
    report = pod.metadata.annotations.get(INJECTED)
    if report is not None:
        detail = f"the webhook gave the pod no volume: {left_out(report)}"
        return _broken(detail, f"correct that, and create the pod again ({_BY_LABEL})")
    if labels:
        detail = f"the pod has the label {labels[0]} and no annotation {INJECTED}: the webhook was not called"
        found = kubectl("get", "mutatingwebhookconfiguration", WEBHOOK)
        return _broken(
            detail,
            f"{found} shows whether it is installed (else {install(Feature.POD_CACHES)}); if it is, it was away when "
            "the pod was created, or the label came later: create the pod again",
        )
    described = kubectl("get", "pod", pod.metadata.name, "-n", pod.metadata.namespace, "-o", "yaml")
    return _broken(
        f"the pod has no volume of {DRIVER}",
        f"add a csi volume of {DRIVER}, as deploy/samples/pod.yaml has it; {described} shows the volumes",
    )


def left_out(report: str) -> str:
    """Return the reasons in a report, which its reader must escape: any author of a pod can write one."""
    if len(report) > MAX_REPORT:
        return f"its report {INJECTED} is longer than any of the webhook"
    try:
        found = msgspec.json.decode(report, type=InjectionReport).skipped
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return f"its report {INJECTED} cannot be read"
    return "; ".join(f"{each.what}: {each.why}" for each in found[:4]) or "its report has no reason"


def _broken(detail: str, hint: str) -> LinkResult:
    return LinkResult("", "volume", State.BROKEN, detail, hint)
