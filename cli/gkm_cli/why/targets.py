"""Which pods a command line means: one by name, those of a workload, a cache or a selector, or those that wait."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gkm.api.installation import DRIVER
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from msgspec import Struct

from gkm_cli.clusters.reads import get, pages
from gkm_cli.output import CommandFailed, UsageError
from gkm_cli.why.facts import CacheName, PodFacts
from gkm_cli.why.observation import PODS, cache_name
from gkm_cli.why.options import PodChoice
from gkm_cli.why.outcomes import kubectl

MAX_PODS: Final = 50
"""Pods whose links are walked: each needs some requests."""
_POD_KINDS = ("pod", "pods", "po")


class _Expression(Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class _Selector(Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None

    def __str__(self) -> str:
        return ",".join(
            [*(f"{key}={value}" for key, value in (self.match_labels or {}).items())]
            + [_term(one) for one in self.match_expressions or ()]
        )


class _WorkloadSpec(Struct, frozen=True):
    selector: _Selector = _Selector()


class Workload(Struct, frozen=True):
    """A workload, such as a Deployment, that selects its pods by labels."""

    spec: _WorkloadSpec = _WorkloadSpec()


_WORKLOADS: Mapping[tuple[str, ...], Resource[Workload]] = {
    (short, plural.removesuffix("s"), plural): Resource(group, kind, plural, namespaced=True, type=Workload)
    for short, group, kind, plural in (
        ("deploy", "apps/v1", "Deployment", "deployments"),
        ("sts", "apps/v1", "StatefulSet", "statefulsets"),
        ("ds", "apps/v1", "DaemonSet", "daemonsets"),
        ("rs", "apps/v1", "ReplicaSet", "replicasets"),
        ("job", "batch/v1", "Job", "jobs"),
    )
}
_CACHES: Mapping[tuple[str, ...], Resource[Any]] = {
    ("gkmcache", "gkmcaches", "gkmc"): GKMCACHES,
    ("clustergkmcache", "clustergkmcaches", "cgkmc"): CLUSTERGKMCACHES,
}
_KINDS = {name: resource for kinds in (_WORKLOADS, _CACHES) for names, resource in kinds.items() for name in names}


@dataclass(frozen=True, slots=True)
class ChosenPods:
    """The pods to explain, those that wait or fail first; `more` others were not looked at."""

    pods: list[PodFacts]
    more: int = 0


def is_one_pod(target: str) -> bool:
    """Return whether a target is a pod: NAME, or pod/NAME.

    Raises:
        UsageError: the target is of a kind without pods.
    """
    kind, separator, name = target.partition("/")
    if separator and (not name or "/" in name or kind not in {*_POD_KINDS, *_KINDS}):
        known = "pod, deploy, sts, ds, rs, job, gkmcache or clustergkmcache"
        raise UsageError(f"{target!r} names no pods", f"write the name of a pod, or KIND/NAME with {known}")
    return bool(target) and (not separator or kind in _POD_KINDS)


def check(target: str, choice: PodChoice) -> None:
    """Refuse a target that names no pods, and a target together with options that choose pods.

    Raises:
        UsageError: as above.
    """
    is_one_pod(target)
    if target and (choice.labels or choice.all_namespaces):
        other = "-l" if choice.labels else "-A"
        raise UsageError(f"{target} and {other} exclude each other", "give one of them")


def chosen(api: Api, target: str, namespace: str, labels: str) -> ChosenPods:
    """Return the pods of a target, of a selector, or without both those that wait or fail for a volume.

    An empty `namespace` stands for all.

    Raises:
        CommandFailed: the target does not exist, or has no pods; or no pod has the labels.
        Unreadable: pods or the target cannot be read.
    """
    kind, _, name = target.rpartition("/")
    if is_one_pod(target):
        if (pod := get(api, PODS, name, namespace)) is None:
            raise CommandFailed(f"there is no pod {name} in the namespace {namespace}; name its namespace with -n")
        return ChosenPods([pod])
    if not target and not labels:
        return _listed(api, ListSelector(namespace), lambda pod: _is_of_gkm(pod) and waits_or_fails(pod))
    if not target:
        found = _listed(api, ListSelector(namespace, labels=labels), lambda _: True)
        return _some(found, f"no pod has the labels {labels}", namespace)
    return _of_object(api, _KINDS[kind], name, namespace)


def _of_object(api: Api, resource: Resource[Any], name: str, namespace: str) -> ChosenPods:
    found = get(api, resource, name, namespace if resource.namespaced else None)
    if found is None:
        where = f" in the namespace {namespace}; name its namespace with -n" if resource.namespaced else ""
        raise CommandFailed(f"there is no {resource.kind} {name}{where or '; gkm cache list -A lists all'}")
    if isinstance(found, Workload):
        if not (labels := str(found.spec.selector)):
            raise CommandFailed(f"{resource.kind} {name} selects no pods; name a pod")
        pods = _listed(api, ListSelector(namespace, labels=labels), lambda _: True)
    else:
        names = {found.metadata.name, found.spec.family} - {""}
        pods = _listed(api, ListSelector(found.metadata.namespace), lambda pod: _names(pod, resource, names))
    return _some(pods, f"no pod is of {resource.kind} {name}", namespace)


def _some(found: ChosenPods, absent: str, namespace: str) -> ChosenPods:
    if not found.pods and not found.more:
        where = ("-n", namespace) if namespace else ("-A",)
        raise CommandFailed(f"{absent}; {kubectl('get', 'pods', *where)} lists those that exist")
    return found


def _listed(api: Api, selector: ListSelector, is_meant: Callable[[PodFacts], bool]) -> ChosenPods:
    found: list[PodFacts] = []
    damaged = 0
    for page in pages(api, PODS, selector):
        values = [entry.value for entry in page.entries]
        found += [pod for pod in values if not pod.metadata.deletion_timestamp and is_meant(pod)]
        damaged += len(page.unreadable)
    found.sort(key=lambda pod: (not waits_or_fails(pod), pod.metadata.namespace, pod.metadata.name))
    return ChosenPods(found[:MAX_PODS], max(0, len(found) - MAX_PODS) + damaged)


def waits_or_fails(pod: PodFacts) -> bool:
    """Return whether a pod has not started, or one of its containers waits or ended with an error."""
    if pod.status.phase in ("Succeeded", "Running"):
        ends = [each.state.terminated or each.last_state.terminated for each in pod.statuses]
        waits = any(each.state.running is None and each.state.terminated is None for each in pod.statuses)
        return any(end and end.exit_code for end in ends) or (waits and pod.status.phase == "Running")
    return True


def _is_of_gkm(pod: PodFacts) -> bool:
    volumes = (volume.csi for volume in pod.spec.volumes or ())
    labels = pod.metadata.labels
    return any(csi and csi.driver == DRIVER for csi in volumes) or bool(labels.get(CACHE) or labels.get(CLUSTER_CACHE))


def _names(pod: PodFacts, resource: Resource[Any], names: set[str]) -> bool:
    """Return whether a pod names a cache, or the family of it, by a volume or a label."""
    namespace = pod.metadata.namespace if resource.namespaced else None
    wanted = {CacheName(namespace, name) for name in names}
    csi = [volume.csi for volume in pod.spec.volumes or () if volume.csi and volume.csi.driver == DRIVER]
    by_volume = {cache_name(each.volume_attributes or {}, pod.metadata.namespace) for each in csi}
    label = pod.metadata.labels.get(CACHE if resource.namespaced else CLUSTER_CACHE)
    return bool(by_volume & wanted) or label in names


def _term(one: _Expression) -> str:
    values = ",".join(one.values or ())
    match one.operator:
        case "In":
            return f"{one.key} in ({values})"
        case "NotIn":
            return f"{one.key} notin ({values})"
        case "DoesNotExist":
            return f"!{one.key}"
    return one.key
