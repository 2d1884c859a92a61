"""Decides what a pod gets for the caches that it names. Pure: a pod, and what watches have shown, become a patch."""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gkm.api import pod_caches
from gkm.api.installation import DRIVER
from gkm.api.network_settings import Network
from gkm.api.node_labels import cache_label
from gkm.hoststate.names import CacheRef, quoted
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.runtimes import BY_NAME, UNKNOWN_RUNTIME_VARIABLES

from gkm_operator.admission.domains.requests import DomainRequest
from gkm_operator.admission.pods import containers, wishes
from gkm_operator.admission.pods.additions import Additions, Injected, Report, annotated, encoded, missing_bytes
from gkm_operator.admission.pods.objects import CacheContainer, CachePod, Volume
from gkm_operator.admission.pods.wishes import Skipped, Wishes
from gkm_operator.admission.review import ADMITTED, ReviewResponse
from gkm_operator.mnnvl.gpu_requests import GPURequests

DIRECTORY: Final = "/var/cache/gkm"
"""Holds the default mount paths, by the name of the cache: images and users rarely have something there."""
VOLUMES: Final = ("gkm-cache", "gkm-cluster-cache")
"""The names of our volumes, for a GKMCache and a ClusterGKMCache."""


class Caches(Protocol):
    """What the watches have shown. Thread-safe, and never waits."""

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
        self._containers = containers.chosen(pod, wish.container, gpus, self._skipped) if wish.caches else []
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
        runtime = self._review.caches.runtime(ref)
        known = BY_NAME.get(runtime or "")
        variables = known.variables if known else UNKNOWN_RUNTIME_VARIABLES
        path = self._path(ref, variables)
        mounted = [index for index in self._containers if self._mount(index, name, path)]
        if not mounted:
            return None
        if not runtime:
            unknown = "was not observed yet" if runtime is None else "has an unknown runtime as yet"
            self._skip("runtime", f"{ref} {unknown}: {' and '.join(variables)} name its path")
        added = [each for index in mounted for each in self._set_variables(index, variables, path)]
        self.additions.volumes.append(self._volume(name, ref, path))
        return Injected(
            str(ref),
            name,
            path,
            tuple(self._pod.containers[index].name[:63] for index in mounted),
            tuple(dict.fromkeys(added)),
            self._prefer(ref),
        )

    def _taken(self, ref: CacheRef, name: str) -> str:
        """Return why the pod gets no volume of a cache, "" if it gets one."""
        for volume in self._pod.spec.volumes or ():
            if names_cache(volume, ref):
                return f"the pod has volume {quoted(volume.name)} of it"
            if volume.name == name:
                return f"the pod has another volume {name}"
        return ""

    def _path(self, ref: CacheRef, variables: Sequence[str]) -> str:
        """Return where containers see the cache: as the pod says, also by a variable, or the default."""
        if self._wish.path and ref == self._wish.caches[0]:
            return self._wish.path
        stated = (_literal(self._pod.containers[index], variables) for index in self._containers)
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

    def _set_variables(self, index: int, variables: Iterable[str], path: str) -> list[str]:
        """Add the variables that a container lacks; return their names."""
        container = self._pod.containers[index]
        values = {each.name: each.value for each in container.env or ()}
        values |= {each["name"]: each["value"] for each in self.additions.environment.get(index, ())}
        added = [name for name in variables if name not in values]
        entries = [{"name": name, "value": path} for name in added]
        if entries:
            self.additions.environment.setdefault(index, []).extend(entries)
        for name in variables:
            if values.get(name, path) != path:
                why = f"it has another value in container {quoted(container.name)}, and the cache is at {quoted(path)}"
                self._skip(name, why)
        return added

    def _volume(self, name: str, ref: CacheRef, path: str) -> dict[str, object]:
        attributes = {"cacheName" if ref.namespace is not None else "clusterCacheName": ref.name, "mountPath": path}
        attributes |= {"readOnly": "false"} if self._wish.private else {}
        attributes |= {"ifUnavailable": "empty"} if self._wish.if_unavailable == "empty" else {}
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
    """Return whether a volume of the pod is of this cache, by our attributes or by those of the upstream driver."""
    if volume.csi is None or volume.csi.driver != DRIVER:
        return False
    attributes = volume.csi.volume_attributes or {}
    upstream = attributes.get("csi.gkm.io/GKMCache") == ref.name
    if ref.namespace is None:
        return attributes.get("clusterCacheName") == ref.name or (upstream and "csi.gkm.io/namespace" not in attributes)
    return attributes.get("cacheName") == ref.name or (upstream and "csi.gkm.io/namespace" in attributes)


def _literal(container: CacheContainer, variables: Sequence[str]) -> str:
    """Return the path that a variable of a container states; "" without one, or if its value refers to others."""
    for variable in container.env or ():
        if variable.name in variables and variable.value and "$(" not in variable.value:
            try:
                return MountPath(variable.value).text
            except InvalidMountPath:
                return ""
    return ""


def _overlap(one: str, other: str) -> bool:
    """Return whether two mount paths are the same, or one is inside the other."""
    first, second = (f"{posixpath.normpath(each).strip('/')}/".lstrip("/") for each in (one, other))
    return first.startswith(second) or second.startswith(first)
