"""The cache objects of captures: how they are made, and which ones are ours. Pure.

Their labels and annotations begin with `gkm.io/captured-`; the policy gkm-captured-caches lets only the controllers
write them. So they prove who made an object, and a name proves nothing.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gkm.api.caches import Cache, ClusterGKMCache, GKMCache, verified_digest
from gkm.api.captured_metadata import ARCH, BACKEND, CONTENT, DRIVER, HARDWARE, NAMESPACE, RUNTIME, TIME, VERSION
from gkm.api.errors import GKMError
from gkm.api.meta import API_VERSION, timestamp, utc_time
from gkm.images.captured.content import cache_name, repository
from gkm.images.reference import Reference

from gkm_operator.caches.totals import CacheKey
from gkm_operator.captures.announcements import Announcement, is_image_in

_MAX_LABEL: Final = 63
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class CapturedCache:
    """A cache object that the controllers made of a capture."""

    key: CacheKey
    uid: str
    namespace: str
    """That of the pods, also for a ClusterGKMCache."""
    image: str
    hardware_key: str
    content_digest: str
    time: datetime
    created: str
    resource_version: str
    pods_using: int


def cache_object(announced: Announcement, *, cluster: bool) -> dict[str, Any]:
    """Return the object to create."""
    hardware = announced.hardware
    labels = {
        NAMESPACE: announced.namespace,
        RUNTIME: hardware.runtime,
        BACKEND: hardware.backend,
        ARCH: hardware.arch,
        DRIVER: _label(hardware.driver),
        **({VERSION: _label(hardware.version)} if hardware.version else {}),
        "app.kubernetes.io/managed-by": "gkm",
    }
    annotations = {HARDWARE: hardware.key, CONTENT: announced.content_digest, TIME: timestamp(announced.time)}
    metadata = {"name": announced.name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": API_VERSION,
        "kind": (ClusterGKMCache if cluster else GKMCache).__name__,
        "metadata": metadata if cluster else {**metadata, "namespace": announced.namespace},
        "spec": {"image": announced.image},
    }


def captured_cache(cache: Cache, registry: str) -> CapturedCache | None:
    """Return a cache object that the controllers made; None for any other one.

    One whose image is not that of its labels in `registry` is not ours any more: a user changed it.
    """
    metadata = cache.metadata
    labels, annotations = metadata.labels, metadata.annotations
    namespace, runtime = labels.get(NAMESPACE, ""), labels.get(RUNTIME, "")
    digest, hardware_key = annotations.get(CONTENT, ""), annotations.get(HARDWARE, "")
    time = utc_time(annotations.get(TIME))
    if not (namespace and runtime and hardware_key) or time is None or metadata.namespace not in ("", namespace):
        return None
    is_own_name = metadata.name == cache_name(runtime, labels.get(ARCH, ""), digest)
    if not is_own_name or not is_image_in(cache.spec.image, repository(registry, namespace, runtime)):
        return None
    return CapturedCache(
        CacheKey(metadata.namespace, metadata.name),
        metadata.uid,
        namespace,
        cache.spec.image,
        hardware_key,
        digest,
        time,
        metadata.creation_timestamp,
        metadata.resource_version,
        cache.status.pods_using,
    )


def is_naming(cache: Cache, image: str) -> bool:
    """Return whether a cache object names a pinned image in its own repository, and is verified.

    Anybody who may create a GKMCache can write a digest into it. In another repository, the digest is another image.
    """
    try:
        wanted, named = Reference.parse(image), Reference.parse(cache.spec.image)
    except GKMError:
        return False
    return named.name == wanted.name and verified_digest(cache) == wanted.target


def digests_named(cache: Cache) -> set[str]:
    """Return the digests that a cache object names, or has resolved its tag to."""
    named = {cache.spec.image.rpartition("@")[2], cache.status.resolved_digest or ""}
    return {each for each in named if each.startswith("sha256:")}


def _label(value: str) -> str:
    return _NOT_IN_LABELS.sub("_", value)[:_MAX_LABEL].strip("_.-")
