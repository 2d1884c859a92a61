"""Check the captures that agents announce, and make cache objects from them. Pure.

An announcement was written with the token of a node, which may be stolen: each field is compared with what GKM itself
would have made of the others. The rest is a claim about an image, which its signatures prove or not.

Labels and annotations of the cache objects begin with `gkm.io/captured-`; the policy gkm-captured-caches lets only the
controllers write them. So they prove who made an object, and a name is no proof.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from gkm.api.caches import DIGEST_PATTERN, NAME_PATTERN, Cache, ClusterGKMCache, GKMCache, is_held_back, verified_digest
from gkm.api.captured_metadata import (
    ARCH,
    BACKEND,
    CONTENT,
    DRIVER,
    EARLIER,
    HARDWARE,
    NAMESPACE,
    RUNTIME,
    TIME,
    VERSION,
)
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import API_VERSION, FALSE, timestamp, utc_time
from gkm.images.cache import Format
from gkm.images.captured.content import Hardware, cache_name, member_name, repository
from gkm.images.captured.statement import CLOCK_SKEW
from gkm.images.reference import Reference
from gkm.runtimes.placement import names_in

from gkm_operator.caches.node_reports import ReportedCapture
from gkm_operator.caches.totals import CacheKey

MAX_ANNOUNCEMENTS: Final = 1024
"""Limit of captures of one namespace that are considered; 32 nodes with full reports announce as many."""

_RUNTIMES: Final = frozenset(each.value for each in Format)
_BACKENDS: Final = frozenset({"cuda", "hip"})
_ARCH: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,29}[a-z0-9]", re.ASCII)
_VERSION: Final = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.+_-]{0,61}[0-9A-Za-z])?", re.ASCII)
_DIGEST: Final = re.compile(DIGEST_PATTERN, re.ASCII)
_FAMILY: Final = re.compile(NAME_PATTERN, re.ASCII)
_MAX_FAMILY: Final = 253


@dataclass(frozen=True, slots=True)
class Announcement:
    """A capture of a namespace's pods (an image of their kernels), as an agent announces it or as signatures prove it.

    `time` is when the pod started to use the volume.
    """

    namespace: str
    name: str
    image: str
    hardware: Hardware
    content_digest: str
    time: datetime
    nodes: tuple[str, ...]
    """The nodes that announce the capture."""
    family: str = ""
    """The family that the pod's volume names; "" if the cache stands alone."""
    base: str = ""
    """The digest of the image that the capture's image extends; "" if absent."""

    @property
    def group(self) -> tuple[str, str]:
        """Return the family and the hardware key: captures of one group replace each other."""
        return self.family, self.hardware.key

    @property
    def claim(self) -> object:
        """Return what identifies a capture for retries: image, hardware, family and base, without nodes and time."""
        return self.image, self.hardware, self.family, self.base


class InvalidAnnouncement(NamedTuple):
    """A node's announcement of a capture that an honest agent would not make, with the reason."""

    node: str
    reason: Reason
    message: str


def check_announcement(namespace: str, node: str, found: ReportedCapture, registry: str, now: datetime) -> Announcement:
    """Check a capture that a node announces, and return it decoded.

    Raises:
        GKMError: METADATA_INVALID, the fields contradict each other; NOT_ALLOWED, the image is not in the repository
            of the namespace's captures.
    """
    hardware = Hardware(found.backend, found.arch, 0, found.driver, found.runtime, found.version)
    if not _is_possible(hardware):
        raise GKMError(
            Reason.METADATA_INVALID, "the announced capture is for hardware or a runtime that GKM does not capture"
        )
    digest = found.content_digest or ""
    base = found.base or ""
    if not _is_possible_family(found.family, base):
        raise GKMError(
            Reason.METADATA_INVALID, "the announced capture names a family or a base that its pod and node cannot name"
        )
    if not _DIGEST.search(digest) or found.name != _name(found.family, found.runtime, found.arch, digest):
        raise GKMError(Reason.METADATA_INVALID, "the name of the announced capture does not match its content")
    wanted = repository(registry, namespace, found.runtime)
    if not is_image_in(found.image, wanted):
        raise GKMError(Reason.NOT_ALLOWED, f"the image of the announced capture is not in {wanted}, by digest")
    time = utc_time(found.time)
    if time is None:
        raise GKMError(Reason.METADATA_INVALID, "the time of the announced capture is invalid")
    if time > now + CLOCK_SKEW:
        raise GKMError(Reason.METADATA_INVALID, "the time of the announced capture is later than now")
    return Announcement(namespace, found.name, found.image, hardware, digest, time, (node,), found.family, base)


def merged_announcements(
    namespace: str, reported: Iterable[tuple[str, ReportedCapture]], registry: str, now: datetime
) -> tuple[list[Announcement], list[InvalidAnnouncement]]:
    """Merge the announcements of all nodes: return the captures, the newest first, and the first fault of each node.

    The first captures of all nodes come before their second ones, independent of their claimed times.
    """
    found: dict[tuple[str, object], Announcement] = {}
    nodes: dict[tuple[str, object], dict[str, int]] = {}
    """For each capture, the nodes and its number among the captures of the node."""
    numbers = Counter[str]()
    faults: dict[str, InvalidAnnouncement] = {}
    for node, capture in reported:
        numbers[node] += 1
        try:
            announced = check_announcement(namespace, node, capture, registry, now)
        except GKMError as error:
            faults.setdefault(node, InvalidAnnouncement(node, error.reason, error.message))
            continue
        # A contradiction of a claim, such as other hardware, is another claim: it must not hide the true one.
        key = announced.name, announced.claim
        nodes.setdefault(key, {}).setdefault(node, numbers[node])
        known = found.get(key)
        if known is None or announced.time > known.time:
            found[key] = announced
    counted = nsmallest(
        MAX_ANNOUNCEMENTS, found, key=lambda key: (min(nodes[key].values()), *_newest_first(found[key]))
    )
    captures = [replace(found[key], nodes=tuple(sorted(nodes[key]))) for key in counted]
    return sorted(captures, key=_newest_first), list(faults.values())


def is_image_in(image: str, wanted: str) -> bool:
    """Return whether an image reference has a digest and lies in this repository."""
    try:
        ref = Reference.parse(image)
        return ref.digest is not None and ref.tag is None and str(ref) == image and ref.name == _name_of(wanted)
    except GKMError:
        return False


def _name_of(wanted: str) -> str:
    # As references are compared: `registry:443` and docker.io have several spellings.
    return Reference.parse(wanted).name


def _newest_first(announced: Announcement) -> tuple[float, str, str]:
    return -announced.time.timestamp(), announced.name, announced.image


def _is_possible(hardware: Hardware) -> bool:
    names = names_in(hardware.runtime)
    return (
        bool(names)
        and _RUNTIMES.issuperset(names)
        and hardware.backend in _BACKENDS
        and bool(_ARCH.fullmatch(hardware.arch))
        and bool(_VERSION.fullmatch(hardware.driver))
        and (not hardware.version or bool(_VERSION.fullmatch(hardware.version)))
    )


def _is_possible_family(family: str, base: str) -> bool:
    if not family:
        return not base
    return (
        len(family) <= _MAX_FAMILY and bool(_FAMILY.fullmatch(family)) and (not base or bool(_DIGEST.fullmatch(base)))
    )


def _name(family: str, runtime: str, arch: str, digest: str) -> str:
    return member_name(family, arch, digest) if family else cache_name(runtime, arch, digest)


_MAX_LABEL: Final = 63
_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class CapturedCache:
    """A cache object that the controllers made from a capture."""

    key: CacheKey
    uid: str
    namespace: str
    """The namespace of the pods, also for a ClusterGKMCache."""
    image: str
    hardware_key: str
    content_digest: str
    time: datetime
    created: str
    resource_version: str
    pods_using: int
    family: str = ""
    generation: int = 0
    earlier: tuple[str, ...] = ()
    """Short digests of contents that had a generation before, the latest first; empty in watched objects."""
    pinned: bool = False
    verified: bool = False
    refused: bool = False
    """Whether the signatures of the image are not valid."""
    held_back: bool = False

    @property
    def group(self) -> tuple[str, str]:
        """Return the family and the hardware key: captures of one group replace each other."""
        return self.family, self.hardware_key


class Generation(NamedTuple):
    """The number of a capture in its family, and the short content digests of earlier generations, the latest first."""

    number: int
    earlier: tuple[str, ...] = ()


def cache_object(announced: Announcement, generation: Generation | None = None, *, cluster: bool) -> dict[str, Any]:
    """Return the cache object to create for a capture; `generation` is set if it belongs to a family."""
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
    spec: dict[str, Any] = {"image": announced.image}
    if generation is not None:
        spec |= {"family": announced.family, "generation": generation.number}
        annotations |= {EARLIER: " ".join(generation.earlier)}
    metadata = {"name": announced.name, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": API_VERSION,
        "kind": (ClusterGKMCache if cluster else GKMCache).__name__,
        "metadata": metadata if cluster else {**metadata, "namespace": announced.namespace},
        "spec": spec,
    }


def captured_cache(cache: Cache, registry: str) -> CapturedCache | None:
    """Return a cache object as a capture if the controllers made it; None for any other.

    An object whose image does not match its labels in `registry` is not ours any more: a user changed it.
    """
    metadata = cache.metadata
    labels, annotations = metadata.labels, metadata.annotations
    namespace, runtime = labels.get(NAMESPACE, ""), labels.get(RUNTIME, "")
    digest, hardware_key = annotations.get(CONTENT, ""), annotations.get(HARDWARE, "")
    time = utc_time(annotations.get(TIME))
    if not (namespace and runtime and hardware_key) or time is None or metadata.namespace not in ("", namespace):
        return None
    is_own_name = metadata.name == _name(cache.spec.family, runtime, labels.get(ARCH, ""), digest)
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
        cache.spec.family,
        cache.spec.generation or 0,
        tuple(annotations.get(EARLIER, "").split()),
        bool(cache.spec.pinned),
        verified_digest(cache) is not None,
        (verified := cache.status.condition("Verified")) is not None and verified.status == FALSE,
        is_held_back(cache),
    )


def is_naming(cache: Cache, image: str) -> bool:
    """Return whether a verified cache object of a user names this image by digest.

    Anybody who may create a GKMCache can write a digest into it. In another repository, the digest is another image.
    """
    try:
        wanted, named = Reference.parse(image), Reference.parse(cache.spec.image)
    except GKMError:
        return False
    return named.name == wanted.name and verified_digest(cache) == wanted.target


def digests_named(cache: Cache) -> set[str]:
    """Return the digests that a cache object names or that its tag was resolved to."""
    named = {cache.spec.image.rpartition("@")[2], cache.status.resolved_digest or ""}
    return {each for each in named if each.startswith("sha256:")}


def _label(value: str) -> str:
    return _NOT_IN_LABELS.sub("_", value)[:_MAX_LABEL].strip("_.-")
