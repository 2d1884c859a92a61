"""Read which caches a pod's labels and annotations request. Pure; an unusable value is reported and ignored."""

from dataclasses import dataclass
from typing import Literal

from gkm.api import pod_caches
from gkm.hoststate.names import CacheRef, InvalidName, quoted
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from msgspec import Struct

from gkm_operator.admission.pods.objects import CachePodMetadata


class Skipped(Struct, frozen=True):
    """A part of a pod's request for caches that GKM left out, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """The requests of a pod about its caches, from labels and annotations. `path`, `container`: "" for the default."""

    caches: tuple[CacheRef, ...] = ()
    container: str = ""
    path: str = ""
    private: bool = True
    required: bool = False
    if_unavailable: Literal["wait", "empty"] = "empty"
    skipped: tuple[Skipped, ...] = ()


def has_label(metadata: CachePodMetadata) -> bool:
    """Return whether the pod has one of GKM's labels, so that the default of its namespace does not apply."""
    return any(metadata.label(key) is not None for key in pod_caches.LABELS)


def read(metadata: CachePodMetadata, namespace: str, default: str) -> Wishes:
    """Return the caches that a pod requests; `default` is the default cache of its namespace, "" if absent."""
    skipped: list[Skipped] = []
    caches = tuple(_caches(metadata, namespace, default, skipped))
    if not caches:
        return Wishes(skipped=tuple(skipped))
    private = _choice(metadata, pod_caches.MODE, ("private", "read-only"), skipped) == "private"
    required = _choice(metadata, pod_caches.NODES, ("preferred", "required"), skipped) == "required"
    starts_without = private and not required
    # A pod that may run where the cache is not ready must start there; a pod that may not would not gain by that.
    choices = ("empty", "wait") if starts_without else ("wait", "empty")
    chosen = _choice(metadata, pod_caches.IF_UNAVAILABLE, choices, skipped)
    return Wishes(
        caches,
        metadata.annotation(pod_caches.CONTAINER) or "",
        _path(metadata, skipped),
        private,
        required,
        "empty" if chosen == "empty" else "wait",
        tuple(skipped),
    )


def _caches(metadata: CachePodMetadata, namespace: str, default: str, skipped: list[Skipped]) -> "list[CacheRef]":
    named = [(pod_caches.CACHE, namespace), (pod_caches.CLUSTER_CACHE, None)]
    wanted = [(key, scope, metadata.label(key) or "") for key, scope in named]
    if default and not has_label(metadata):
        wanted = [(pod_caches.DEFAULT_CACHE, namespace, default)]
    found: list[CacheRef] = []
    for key, scope, name in wanted:
        if not name:
            continue
        try:
            found.append(CacheRef(scope, name))
        except InvalidName as error:
            skipped.append(Skipped(key, str(error)))
    return found


def _choice(metadata: CachePodMetadata, key: str, values: tuple[str, str], skipped: list[Skipped]) -> str:
    """Return the value of an annotation; the first of `values` is the default."""
    value = metadata.annotation(key)
    if value in values:
        return value
    if value is not None:
        first, second = sorted(values)
        skipped.append(Skipped(key, f"it must be {first!r} or {second!r}, not {quoted(value)}; used {values[0]!r}"))
    return values[0]


def _path(metadata: CachePodMetadata, skipped: list[Skipped]) -> str:
    value = metadata.annotation(pod_caches.PATH)
    if value is None:
        return ""
    try:
        return MountPath(value).text
    except InvalidMountPath as error:
        skipped.append(Skipped(pod_caches.PATH, f"{error}; the default is used"))
        return ""
