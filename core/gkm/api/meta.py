"""The common parts of Kubernetes objects: metadata and conditions, with only the fields that GKM uses."""

import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

GROUP = "gkm.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


Count = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})]
ObservedGeneration = Annotated[int, Meta(ge=0, description="metadata.generation that this status is about.")]


class OwnerReference(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An owner reference of an object; Kubernetes deletes the object with its owner."""

    api_version: str
    kind: str
    name: str
    uid: str


class ObjectMeta(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The metadata that GKM reads or writes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: list[OwnerReference] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


_NO_TEXTS: dict[str, str] = {}
_NO_OWNERS: list[OwnerReference] = []
_NO_FINALIZERS: list[str] = []


class Condition(Struct, frozen=True, rename="camel"):
    """A condition as Kubernetes' API conventions define it; lengths follow metav1.Condition."""

    type: Annotated[str, Meta(max_length=316)]
    """Subject of the condition, in CamelCase."""
    status: Annotated[str, Meta(pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Annotated[str, Meta(min_length=1, max_length=1024)]
    """Reason for this status, as one word in CamelCase for programs."""
    message: Annotated[str, Meta(max_length=32768)]
    """Reason for this status, as a sentence for people."""
    last_transition_time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    """When the status changed last from one value to another."""
    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """metadata.generation that this condition is about."""


Conditions = Annotated[
    list[Condition],
    Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class HasConditions:
    """A base class of statuses with conditions."""

    __slots__ = ()
    conditions: list[Condition]

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of the status with this type; None if absent."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"
_INTERVAL = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def with_condition(conditions: Iterable[Condition], new: Condition) -> list[Condition]:
    """Return the conditions with `new` in place of the condition of the same type.

    The transition time stays the same while the status does (API conventions, "Typical status properties").
    """
    result = []
    for old in conditions:
        if old.type != new.type:
            result.append(old)
        elif old.status == new.status:
            new = replace(new, last_transition_time=old.last_transition_time)
    return sorted([*result, new], key=lambda condition: condition.type)


def seconds_of(interval: str) -> int:
    """Return the number of seconds in an interval such as `1h30m`; 0 for text in another format."""
    found = _INTERVAL.fullmatch(interval)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds


def utc_time(text: str | None) -> datetime | None:
    """Return a timestamp text with an offset as a time in UTC; None for invalid text."""
    try:
        found = datetime.fromisoformat(text or "")
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def timestamp(moment: datetime | None = None) -> str:
    """Return a time (default: now) as Kubernetes writes it: UTC, to the second."""
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def thin_metadata(found: ObjectMeta, labels: Collection[str] = (), annotations: Collection[str] = ()) -> ObjectMeta:
    """Return metadata with only these labels and annotations, and without owners and finalizers.

    All thin metadata share their empty values to save memory, so callers must not modify them.
    """
    return replace(
        found,
        labels={key: found.labels[key] for key in labels if key in found.labels} or _NO_TEXTS,
        annotations={key: found.annotations[key] for key in annotations if key in found.annotations} or _NO_TEXTS,
        owner_references=_NO_OWNERS,
        finalizers=_NO_FINALIZERS,
    )
