"""The steps of `gkm why`: connect, choose the pods, read, walk, print, and choose the exit code."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gkm.api.grammar import count_of, listed
from gkm.api.installation import DRIVER
from gkm.api.pod_caches import CACHE, CLUSTER_CACHE
from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Resource
from msgspec import Struct

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.clusters.reads import get, pages
from gkm_cli.output import CommandFailed, NegativeResult, Output, UsageError, line, show, table
from gkm_cli.progress import waiting
from gkm_cli.why import image_volumes
from gkm_cli.why.facts import CacheName, PodFacts
from gkm_cli.why.injection import no_volume
from gkm_cli.why.links import LinkResult, State, walk
from gkm_cli.why.observation import PODS, Observation, cache_name
from gkm_cli.why.options import PodChoice
from gkm_cli.why.outcomes import kubectl

_MAX_NAMES = 5
_WORST = (State.BROKEN, State.NOT_CHECKED, State.OK)
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
        unfinished = ListSelector(namespace, fields="status.phase!=Succeeded")
        return _listed(api, unfinished, lambda pod: _is_of_gkm(pod) and waits_or_fails(pod))
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
    if pod.status.phase == "Running":
        ends = [each.state.terminated or each.last_state.terminated for each in pod.statuses]
        waits = any(each.state.running is None and each.state.terminated is None for each in pod.statuses)
        return waits or any(end and end.exit_code for end in ends)
    return pod.status.phase != "Succeeded"


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


@dataclass(frozen=True, slots=True)
class WalkedPod:
    """A pod, and the result of each link between it and the kernels of its caches, for each of its volumes."""

    pod: PodFacts
    steps: list[LinkResult]

    @property
    def state(self) -> State:
        """Return the worst state of the pod's links."""
        states = {step.state for step in self.steps}
        return next(state for state in _WORST if state in states)


def explain(target: str, cluster: ClusterOptions, choice: PodChoice, output: Output) -> None:
    """Print every link of the chosen pods, and each broken one with what to do.

    Raises:
        UsageError: the target is of a kind without pods, or contradicts the choice.
        CommandFailed: there is no such pod, or no link is broken and some could not be checked.
        NegativeResult: a link is broken.
    """
    check(target, choice)
    connection = connected(cluster, choice.namespace)
    where = "" if choice.all_namespaces else choice.namespace or connection.namespace
    with waiting(f"reading {target or 'pods'}"):
        found = chosen(connection.api, target, where, choice.labels)
        observation = Observation(connection.api)
        walked = [WalkedPod(pod, _steps(observation, pod)) for pod in found.pods]
    entries = [_entry(one.pod, step) for one in walked for step in one.steps]
    show(entries, output, lambda: _print(walked, target, where))
    conclude([step for one in walked for step in one.steps], found.more)


def _steps(observation: Observation, pod: PodFacts) -> list[LinkResult]:
    by_image = observation.image_facts(pod)
    steps = [step for each in observation.facts(pod) for step in walk(each)]
    steps += [step for each in by_image for step in walk(each, image_volumes.LINKS, image_volumes.NEEDS)]
    return steps or [no_volume(pod)]


def _entry(pod: PodFacts, step: LinkResult) -> dict[str, Any]:
    return {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "check": step.link,
        "ok": step.state is State.OK,
        "state": step.state.value,
        "volume": step.volume,
        "detail": step.detail,
        "hint": step.hint,
    }


def _print(walked: Sequence[WalkedPod], target: str, namespace: str) -> None:
    if not walked:
        where = f"of the namespace {namespace}" if namespace else "of the cluster"
        line(f"no pod {where} waits or fails for a volume of GKM")
    elif len(walked) == 1:
        if not is_one_pod(target):
            line(f"pod {_name(walked[0].pod)}")
        _print_steps(walked[0].steps)
    else:
        _print_pods(walked)
    if walked:
        _print_next(walked)


def _print_steps(steps: Sequence[LinkResult]) -> None:
    several = len({step.volume for step in steps}) > 1
    rows = [(step.volume, step.link, step.state.value, step.detail if step.state is State.OK else "") for step in steps]
    columns = ("volume", "link", "state", "detail")
    table(columns if several else columns[1:], rows if several else [row[1:] for row in rows])


def _print_pods(walked: Sequence[WalkedPod]) -> None:
    rows = []
    for one in walked:
        links = dict.fromkeys(step.link for step in one.steps if step.state is one.state is not State.OK)
        rows.append((_name(one.pod), one.pod.spec.node_name, one.state.value, ", ".join(links)))
    table(("pod", "node", "state", "links"), rows)


def _print_next(walked: Sequence[WalkedPod]) -> None:
    # One object that cannot be read leaves several links unchecked, and one fault breaks several pods.
    for (state, detail, hint), found in _grouped(walked).items():
        line("")
        line(f"{state.value}: {', '.join(dict.fromkeys(link for link, _ in found))}: {detail}")
        if len(walked) > 1:
            line(f"  pods: {listed(list(dict.fromkeys(pod for _, pod in found)), _MAX_NAMES)}")
        line(f"  next: {hint}")
    if all(one.state is State.OK for one in walked):
        line("")
        line("every link holds")


def _grouped(walked: Sequence[WalkedPod]) -> dict[tuple[State, str, str], list[tuple[str, str]]]:
    """Return the links with a next step, and their pods, by the text that is printed about them."""
    found: dict[tuple[State, str, str], list[tuple[str, str]]] = {}
    for one in walked:
        for step in one.steps:
            if step.hint:
                found.setdefault((step.state, step.detail, step.hint), []).append((step.link, _name(one.pod)))
    return found


def _name(pod: PodFacts) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def conclude(steps: Sequence[LinkResult], more: int) -> None:
    """Choose the exit code of `gkm why`: the worst of all links; `more` pods were not looked at.

    Raises:
        NegativeResult: a link is broken.
        CommandFailed: a link could not be checked, or there are more pods.
    """
    if more:
        sys.stderr.write(f"{count_of(more, 'more pod')}: name one, or select some with -l\n")
    if any(step.state is State.BROKEN for step in steps):
        raise NegativeResult
    unknown = dict.fromkeys(step.link for step in steps if step.state is State.NOT_CHECKED)
    if unknown:
        raise CommandFailed(f"not every link could be checked: {', '.join(unknown)}; see their next steps")
    if more:
        raise CommandFailed(f"{count_of(more, 'pod')} not looked at; name one, or select some with -l")
