"""Decides what a pod gets for the caches that it names. Pure: a pod, and what watches have shown, become a patch.

The patch (RFC 6902) must never remove or replace anything. A required term of the user's node affinity gets a further
expression, because terms are alternatives: another term would allow nodes that the user excludes. An empty term selects
no node, and an expression would make it select some, so it stays.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
from gkm.api import pod_caches
from gkm.api.installation import DRIVER
from gkm.api.network_settings import Network
from gkm.api.node_labels import cache_label
from gkm.api.pod_caches import INJECTED
from gkm.hoststate.names import CacheRef, quoted
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.runtimes import BY_NAME, RUNTIMES, VLLM
from gkm.runtimes.placement import beside, environment, names_in
from msgspec import Struct

from gkm_operator.admission.domains.patches import PREFERRED, REQUIRED, add_entries
from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.pods import wishes
from gkm_operator.admission.pods.objects import Affinity, CacheContainer, CachePod, NodeAffinity, NodeTerm, Volume, size
from gkm_operator.admission.pods.wishes import Skipped, Wishes
from gkm_operator.admission.review import ADMITTED, ReviewResponse
from gkm_operator.mnnvl.gpu_requests import ContainerLocation, GPURequests
from gkm_operator.mnnvl.injection import Operation

MAX_SKIPPED = 16
"""In one report."""
MAX_ANNOTATION_BYTES = 256 << 10
"""The size of all annotations of an object (k8s.io/apimachinery, pkg/api/validation: TotalAnnotationSizeLimitB)."""
_MAX_TEXT = 256

DIRECTORY: Final = "/var/cache/gkm"
"""Holds the default mount paths, by the name of the cache: images and users rarely have something there."""
VOLUMES: Final = ("gkm-cache", "gkm-cluster-cache")
"""The names of our volumes, for a GKMCache and a ClusterGKMCache."""

KSERVE = "kserve-container"
"""The container of the model in the pods of an InferenceService, beside the containers of meshes and queues."""
MAX_CONTAINERS = 16

WEIGHT = 10
"""The weight, of 100: preferences of the user with larger weights take precedence."""
_AT = "/spec/affinity"
_Change = tuple[str, Any]
"""A path below nodeAffinity, and the value to add there."""


class Injected(Struct, frozen=True, omit_defaults=True):
    """The changes of a pod for one cache."""

    cache: str
    volume: str
    path: str
    containers: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """The variables that were added; each is the path, or a directory in it."""
    nodes: str = ""
    """preferred or required, if an affinity was added."""


class Report(Struct, frozen=True, omit_defaults=True):
    """The annotation gkm.io/injected."""

    caches: tuple[Injected, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(slots=True)
class Additions:
    """Entries for the lists of one pod, collected before the patch is made: two caches may add to one list."""

    volumes: list[Mapping[str, Any]] = field(default_factory=list)
    mounts: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """By the index of the container."""
    environment: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    node_labels: list[str] = field(default_factory=list)
    """Labels that nodes should have, or must have."""

    def operations(self, pod: CachePod, *, required: bool) -> Iterator[Operation]:
        """Yield the operations on a pod; `required` is about nodes."""
        spec = pod.spec
        yield from _appended("/spec/volumes", self.volumes, exists=spec.volumes is not None)
        for index, container in enumerate(pod.containers):
            at = f"/spec/containers/{index}"
            mounts, variables = self.mounts.get(index, []), self.environment.get(index, [])
            yield from _appended(f"{at}/volumeMounts", mounts, exists=container.volume_mounts is not None)
            yield from _appended(f"{at}/env", variables, exists=container.env is not None)
        yield from affinity_operations(spec.affinity, self.node_labels, required=required)


def encoded(report: Report) -> str:
    """Return the report as the value of its annotation."""
    skipped = tuple(Skipped(_short(each.what), _short(each.why)) for each in report.skipped[:MAX_SKIPPED])
    if more := len(report.skipped) - MAX_SKIPPED:
        skipped += (Skipped("more", f"{more} other parts"),) if more > 0 else ()
    return msgspec.json.encode(msgspec.structs.replace(report, skipped=skipped)).decode()


def annotated(pod: CachePod, report: str) -> Iterator[Operation]:
    """Yield the operation that writes the report."""
    yield from add_entries("/metadata/annotations", {INJECTED: report}, exists=pod.metadata.has_annotations)


def missing_bytes(pod: CachePod, report: str) -> int:
    """Return how many bytes the annotations of a pod have too few for the report, which replaces an earlier one."""
    metadata = pod.metadata
    earlier = metadata.annotation(INJECTED)
    before = metadata.annotation_bytes - (size((INJECTED, earlier)) if earlier is not None else 0)
    return max(before + size((INJECTED, report)) - MAX_ANNOTATION_BYTES, 0)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _appended(at: str, entries: Sequence[Mapping[str, Any]], *, exists: bool) -> Iterator[Operation]:
    """Yield the operations that append to a list, which is absent or null unless it `exists`."""
    if entries and not exists:
        yield {"op": "add", "path": at, "value": list(entries)}
    elif entries:
        for entry in entries:
            yield {"op": "add", "path": f"{at}/-", "value": entry}


class Caches(Protocol):
    """The caches that the watches have shown. Thread-safe, and never waits."""

    def runtime(self, ref: CacheRef) -> str | None:
        """Return the runtime of a cache, "" while it is unknown; None if the cache was not observed."""

    def default(self, namespace: str) -> str:
        """Return the name of the cache that is the default of a namespace; "" without one."""


@dataclass(frozen=True, slots=True)
class PodCacheReview:
    """Adds the caches that the labels name. `node_labels`: whether agents label Nodes with ready caches."""

    caches: Caches
    settings: Network
    node_labels: bool

    def decide(self, request: DomainRequest[CachePod]) -> ReviewResponse:
        """Return the response."""
        pod, metadata = request.object, request.object.metadata
        default = "" if wishes.has_label(metadata) else self.caches.default(request.namespace)
        wish = wishes.read(metadata, request.namespace, default)
        if request.operation != "CREATE" or _is_done(pod) or not (wish.caches or wish.skipped):
            return ADMITTED
        decision = _Decision(pod, wish, self)
        report = decision.report()
        text = encoded(report)
        if missing := missing_bytes(pod, text):
            why = f"its annotations leave {missing} bytes too few for {pod_caches.INJECTED}: shorten them"
            return ReviewResponse(allowed=True, warnings=(f"gkm.io/cache: the pod gets no cache: {why}",))
        operations = (*decision.additions.operations(pod, required=wish.required), *annotated(pod, text))
        warnings = tuple(f"gkm.io/cache: {each.what}: {each.why}" for each in report.skipped)
        return ReviewResponse(allowed=True, warnings=warnings, patch=operations)


def _is_done(pod: CachePod) -> bool:
    """Return whether an earlier call has added a volume: the API server may call again after other webhooks."""
    names = {volume.name for volume in pod.spec.volumes or () if volume.csi is not None and volume.csi.driver == DRIVER}
    return pod.metadata.annotation(pod_caches.INJECTED) is not None and not names.isdisjoint(VOLUMES)


class _Decision:
    """The decision about one pod, cache by cache."""

    def __init__(self, pod: CachePod, wish: Wishes, review: PodCacheReview) -> None:
        self._pod = pod
        self._wish = wish
        self._review = review
        self._skipped = list(wish.skipped)
        gpus = GPURequests(review.settings)
        self._containers = chosen(pod, wish.container, gpus, self._skipped) if wish.caches else []
        self.additions = Additions()

    def report(self) -> Report:
        """Collect the additions; return the report about them."""
        found = [each for ref in self._wish.caches if (each := self._inject(ref)) is not None]
        return Report(tuple(found), tuple(self._skipped))

    def _skip(self, what: str, why: str) -> None:
        self._skipped.append(Skipped(what, why))

    def _inject(self, ref: CacheRef) -> Injected | None:
        name = VOLUMES[ref.namespace is None]
        if why := self._taken(ref, name):
            self._skip(str(ref), why)
            return None
        names = self._runtimes(ref)
        path = self._path(ref, environment(names, ""))
        mounted = [index for index in self._containers if self._mount(index, name, path)]
        if not mounted:
            return None
        self._report_unknown(ref, names)
        private = self._is_private(ref, names)
        variables = environment(names, path), self._beside(names, path) if private else {}
        added = [each for index in mounted for each in self._set_variables(index, *variables)]
        self.additions.volumes.append(self._volume(name, ref, path, private=private))
        return Injected(
            str(ref),
            name,
            path,
            tuple(self._pod.containers[index].name[:63] for index in mounted),
            tuple(dict.fromkeys(added)),
            self._prefer(ref),
        )

    def _is_private(self, ref: CacheRef, names: Sequence[str]) -> bool:
        """Return whether the pod gets a private layer: it wants one, or a runtime needs one."""
        writing = [BY_NAME[each].title for each in names if BY_NAME[each].needs_private_layer]
        if writing and not self._wish.private:
            self._skip(pod_caches.MODE, f"{writing[0]} writes beside its kernels: {ref} has a private layer")
        return self._wish.private or bool(writing)

    def _runtimes(self, ref: CacheRef) -> tuple[str, ...]:
        """Return the runtimes of a cache. While they are unknown: of the variable that a container states, else vLLM's.

        One variable for each of them at one path would have several runtimes write into one directory.
        """
        if known := names_in(self._review.caches.runtime(ref) or ""):
            return known
        stated = {each.name for index in self._containers for each in self._pod.containers[index].env or ()}
        return (next((each for each in RUNTIMES if not stated.isdisjoint(each.variables)), VLLM).name,)

    def _report_unknown(self, ref: CacheRef, names: Sequence[str]) -> None:
        runtime = self._review.caches.runtime(ref)
        if not runtime:
            unknown = "was not observed yet" if runtime is None else "has an unknown runtime as yet"
            why = f"{ref} {unknown}: the pod gets the variables of {BY_NAME[names[0]].title}"
            self._skip("runtime", why)

    def _taken(self, ref: CacheRef, name: str) -> str:
        """Return why the pod gets no volume of a cache, "" if it gets one."""
        for volume in self._pod.spec.volumes or ():
            if names_cache(volume, ref):
                return f"the pod has volume {quoted(volume.name)} of it"
            if volume.name == name:
                return f"the pod has another volume {name}"
        return ""

    def _path(self, ref: CacheRef, directories: Mapping[str, str]) -> str:
        """Return where containers see the cache: as the pod says, also by a variable, or the default."""
        if self._wish.path and ref == self._wish.caches[0]:
            return self._wish.path
        stated = (_literal(self._pod.containers[index], directories) for index in self._containers)
        return next(filter(None, stated), f"{DIRECTORY}/{ref.name}")

    def _mount(self, index: int, volume: str, path: str) -> bool:
        """Add the mount to a container; False if it has another one at the path, above it or below it."""
        container = self._pod.containers[index]
        ours = [each["mountPath"] for each in self.additions.mounts.get(index, ())]
        if (other := next((each for each in (*ours, *container.paths) if _overlap(each, path)), None)) is not None:
            why = f"its mount or device at {quoted(other)} overlaps {quoted(path)}"
            self._skip(f"container {quoted(container.name)}", why)
            return False
        self.additions.mounts.setdefault(index, []).append({"name": volume, "mountPath": path})
        return True

    def _set_variables(self, index: int, needed: Mapping[str, str], further: Mapping[str, str]) -> list[str]:
        """Add the variables that a container lacks; return their names."""
        container = self._pod.containers[index]
        values = {each.name: each.value for each in container.env or ()}
        values |= {each["name"]: each["value"] for each in self.additions.environment.get(index, ())}
        added = {name: value for name, value in {**needed, **further}.items() if name not in values}
        entries = [{"name": name, "value": value} for name, value in added.items()]
        if entries:
            self.additions.environment.setdefault(index, []).extend(entries)
        for name, value in needed.items():
            if values.get(name, value) != value:
                why = f"it has another value in container {quoted(container.name)}, and the cache is at {quoted(value)}"
                self._skip(name, why)
        return list(added)

    def _beside(self, names: Sequence[str], path: str) -> dict[str, str]:
        """Return the variables of further runtimes, except those for which the pod names a cache."""
        own = {name for ref in self._wish.caches for name in environment(self._runtimes(ref), "")}
        return {name: value for name, value in beside(names, path).items() if name not in own}

    def _volume(self, name: str, ref: CacheRef, path: str, *, private: bool) -> dict[str, object]:
        # Each wish is stated: the defaults of the driver differ by its mode of capture.
        attributes = {
            "cacheName" if ref.namespace is not None else "clusterCacheName": ref.name,
            "mountPath": path,
            "readOnly": "false" if private else "true",
            "ifUnavailable": self._wish.if_unavailable,
        }
        if self._pod.spec.host_users is False:
            attributes["userNamespace"] = "true"
        return {"name": name, "csi": {"driver": DRIVER, "volumeAttributes": attributes}}

    def _prefer(self, ref: CacheRef) -> str:
        """Collect the label of the nodes where the cache is ready; return how nodes are chosen, "" if they are not."""
        label = cache_label(ref.namespace, ref.name)
        if label is not None and self._review.node_labels:
            self.additions.node_labels.append(label)
            return "required" if self._wish.required else "preferred"
        if self._wish.required:
            long = f"{ref}: its namespace and name have too many characters for a label of nodes"
            off = "nodes have no labels of ready caches: set fabric.cacheLabels in gkm-config"
            self._skip(pod_caches.NODES, long if label is None else off)
        return ""


def names_cache(volume: Volume, ref: CacheRef) -> bool:
    """Return whether a volume of the pod is of this cache, by our attributes or by the upstream driver's."""
    if volume.csi is None or volume.csi.driver != DRIVER:
        return False
    attributes = volume.csi.volume_attributes or {}
    upstream = attributes.get("csi.gkm.io/GKMCache") == ref.name
    if ref.namespace is None:
        return attributes.get("clusterCacheName") == ref.name or (upstream and "csi.gkm.io/namespace" not in attributes)
    return attributes.get("cacheName") == ref.name or (upstream and "csi.gkm.io/namespace" in attributes)


def _literal(container: CacheContainer, directories: Mapping[str, str]) -> str:
    """Return the path that a variable of a container states; "" without one, or if its value refers to others.

    `directories` has the directory below the path that each variable names.
    """
    for variable in container.env or ():
        if variable.name in directories and variable.value and "$(" not in variable.value:
            try:
                stated = MountPath(variable.value).text
                return MountPath(stated.removesuffix(f"/{directories[variable.name]}")).text
            except InvalidMountPath:
                return ""
    return ""


def _overlap(one: str, other: str) -> bool:
    """Return whether two mount paths are the same, or one is inside the other."""
    first, second = (f"{posixpath.normpath(each).strip('/')}/".lstrip("/") for each in (one, other))
    return first.startswith(second) or second.startswith(first)


def chosen(pod: CachePod, name: str, gpus: GPURequests, skipped: list[Skipped]) -> list[int]:
    """Return the indices of the containers: the one with this name, or those that request GPUs, or the main one.

    Claims are not read, so claims of any device class are used where no container requests a GPU by a resource.
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


def affinity_operations(affinity: Affinity | None, labels: Sequence[str], *, required: bool) -> Iterator[Operation]:
    """Yield the operations that prefer, or require, nodes with these labels; expressions that are there stay."""
    nodes = affinity.node_affinity if affinity is not None else None
    if nodes is not None:
        changes = (_required if required else _preferred)(nodes, labels)
        yield from ({"op": "add", "path": f"{_AT}/nodeAffinity{path}", "value": value} for path, value in changes)
    elif labels:
        made = {REQUIRED: _selector(labels)} if required else {PREFERRED: _entries(labels)}
        if affinity is None:
            yield {"op": "add", "path": _AT, "value": {"nodeAffinity": made}}
        else:
            yield {"op": "add", "path": f"{_AT}/nodeAffinity", "value": made}


def _preferred(nodes: NodeAffinity, labels: Sequence[str]) -> Iterator[_Change]:
    present = {key for each in nodes.preferred or () for key in _keys(each.preference)}
    entries = _entries([label for label in labels if label not in present])
    if entries and nodes.preferred is None:
        yield f"/{PREFERRED}", entries
    else:
        yield from ((f"/{PREFERRED}/-", entry) for entry in entries)


def _required(nodes: NodeAffinity, labels: Sequence[str]) -> Iterator[_Change]:
    if nodes.required is None:
        if labels:
            yield f"/{REQUIRED}", _selector(labels)
        return
    for index, term in enumerate(nodes.required.node_selector_terms or ()):
        if term.empty:
            continue
        present = set(_keys(term))
        missing = [_expression(label) for label in labels if label not in present]
        at = f"/{REQUIRED}/nodeSelectorTerms/{index}/matchExpressions"
        if missing and term.match_expressions is None:
            yield at, missing
        else:
            yield from ((f"{at}/-", each) for each in missing)


def _selector(labels: Sequence[str]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [_expression(label) for label in labels]}]}


def _entries(labels: Sequence[str]) -> list[dict[str, Any]]:
    return [{"weight": WEIGHT, "preference": {"matchExpressions": [_expression(label)]}} for label in labels]


def _keys(term: NodeTerm) -> Iterator[str]:
    return (each.key for each in term.match_expressions or () if each.operator == _EXISTS)


def _expression(label: str) -> dict[str, str]:
    return {"key": label, "operator": _EXISTS}


_EXISTS = "Exists"
