"""The additions to a pod, as a JSON patch (RFC 6902) and as a report. Pure; must never remove or replace anything."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from gkm.api.pod_caches import INJECTED
from msgspec import Struct

from gkm_operator.admission.domains.patches import add_entries
from gkm_operator.admission.pods.affinity import affinity_operations
from gkm_operator.admission.pods.objects import CachePod, size
from gkm_operator.admission.pods.wishes import Skipped
from gkm_operator.mnnvl.injection import Operation

MAX_SKIPPED = 16
"""In one report."""
MAX_ANNOTATION_BYTES = 256 << 10
"""Of all annotations of an object (k8s.io/apimachinery, pkg/api/validation: TotalAnnotationSizeLimitB)."""
_MAX_TEXT = 256


class Injected(Struct, frozen=True, omit_defaults=True):
    """What a pod got for one cache."""

    cache: str
    volume: str
    path: str
    containers: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """The variables that were added; each is the path."""
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
