"""What agents announce of captures, checked. Pure.

An announcement was written with the token of a node, which may be stolen: each field is compared with what GKM itself
would have made of the others. The rest is a claim about an image, which its signatures prove or not.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nsmallest
from typing import Final, NamedTuple

from gkm.api.caches import DIGEST_PATTERN
from gkm.api.errors import GKMError, Reason
from gkm.api.meta import utc_time
from gkm.images.cache import Format
from gkm.images.captured.content import Hardware, cache_name, repository
from gkm.images.captured.statement import CLOCK_SKEW
from gkm.images.reference import Reference

from gkm_operator.caches.node_reports import ReportedCapture

MAX_ANNOUNCEMENTS: Final = 1024
"""Different captures of one namespace that are considered: those of 32 nodes that announce all they can."""

_RUNTIMES: Final = frozenset(each.value for each in Format)
_BACKENDS: Final = frozenset({"cuda", "hip"})
_ARCH: Final = re.compile(r"[a-z0-9][a-z0-9_]{0,29}[a-z0-9]", re.ASCII)
_VERSION: Final = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.+_-]{0,61}[0-9A-Za-z])?", re.ASCII)
_DIGEST: Final = re.compile(DIGEST_PATTERN, re.ASCII)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A capture of a namespace's pods: what agents claim of it, or what is proven.

    `time` is when the pod started to use the volume.
    """

    namespace: str
    name: str
    image: str
    hardware: Hardware
    content_digest: str
    time: datetime
    nodes: tuple[str, ...]
    """The nodes that announce it."""


class InvalidAnnouncement(NamedTuple):
    """An announcement that GKM's agent would not have made, and the reason. Its text is not repeated."""

    node: str
    reason: Reason
    message: str


def check(namespace: str, node: str, found: ReportedCapture, registry: str, now: datetime) -> Announcement:
    """Return what a node announces.

    Raises:
        GKMError: METADATA_INVALID, its fields contradict each other; NOT_ALLOWED, the image is not in the repository
            of the namespace's captures.
    """
    hardware = Hardware(found.backend, found.arch, 0, found.driver, found.runtime, found.version)
    if not _is_possible(hardware):
        raise GKMError(Reason.METADATA_INVALID, "its hardware or its runtime is none that GKM captures")
    digest = found.content_digest or ""
    if not _DIGEST.search(digest) or found.name != cache_name(found.runtime, found.arch, digest):
        raise GKMError(Reason.METADATA_INVALID, "its name is not that of its content")
    wanted = repository(registry, namespace, found.runtime)
    if not is_image_in(found.image, wanted):
        raise GKMError(Reason.NOT_ALLOWED, f"its image is not in {wanted}, by digest")
    time = utc_time(found.time)
    if time is None:
        raise GKMError(Reason.METADATA_INVALID, "its time is none")
    if time > now + CLOCK_SKEW:
        raise GKMError(Reason.METADATA_INVALID, "its time is later than now")
    return Announcement(namespace, found.name, found.image, hardware, digest, time, (node,))


def merged(
    namespace: str, reported: Iterable[tuple[str, ReportedCapture]], registry: str, now: datetime
) -> tuple[list[Announcement], list[InvalidAnnouncement]]:
    """Return the different captures that nodes announce, the newest first, and the first fault of each node.

    The first captures of all nodes count before their second ones, whatever times they claim.
    """
    found: dict[tuple[str, str, Hardware], Announcement] = {}
    nodes: dict[tuple[str, str, Hardware], dict[str, int]] = {}
    """Of each capture, the nodes and its number among those of the node."""
    numbers = Counter[str]()
    faults: dict[str, InvalidAnnouncement] = {}
    for node, capture in reported:
        numbers[node] += 1
        try:
            announced = check(namespace, node, capture, registry, now)
        except GKMError as error:
            faults.setdefault(node, InvalidAnnouncement(node, error.reason, error.message))
            continue
        # What contradicts a claim, as other hardware does, is another claim: it must not hide the true one.
        key = announced.name, announced.image, announced.hardware
        nodes.setdefault(key, {}).setdefault(node, numbers[node])
        known = found.get(key)
        if known is None or announced.time > known.time:
            found[key] = announced
    counted = nsmallest(MAX_ANNOUNCEMENTS, found, key=lambda key: (min(nodes[key].values()), *_order(found[key])))
    captures = [replace(found[key], nodes=tuple(sorted(nodes[key]))) for key in counted]
    return sorted(captures, key=_order), list(faults.values())


def is_image_in(image: str, wanted: str) -> bool:
    """Return whether an image is named by digest, and by nothing else, in this repository."""
    try:
        ref = Reference.parse(image)
        return ref.digest is not None and ref.tag is None and str(ref) == image and ref.name == _name_of(wanted)
    except GKMError:
        return False


def _name_of(wanted: str) -> str:
    # As references are compared: `registry:443` and docker.io have several spellings.
    return Reference.parse(wanted).name


def _order(announced: Announcement) -> tuple[float, str, str]:
    return -announced.time.timestamp(), announced.name, announced.image


def _is_possible(hardware: Hardware) -> bool:
    return (
        hardware.runtime in _RUNTIMES
        and hardware.backend in _BACKENDS
        and bool(_ARCH.fullmatch(hardware.arch))
        and bool(_VERSION.fullmatch(hardware.driver))
        and (not hardware.version or bool(_VERSION.fullmatch(hardware.version)))
    )
