"""Run and PlacementPlan as the controller watches them: only the fields that decide, to save memory."""

import hashlib
from typing import NamedTuple

import msgspec
from gkm.api.meta import API_VERSION, GROUP
from gkm.api.plans import PlanSpec, PlanStatus
from gkm.api.runs import RunSpec, RunStatus
from gkm.kube.memory import MAX_HELD_BYTES
from gkm.kube.resources import Resource
from msgspec import Struct, field, structs

REQUEST_ANNOTATION = f"{GROUP}/asked"
"""Annotation of a plan: the sha256 of the request of its Run."""
REPLAN_ANNOTATION = f"{GROUP}/plan-again"
"""Annotation of a Run: a new value requests a new plan. A plan carries the value of its Run at that time."""

MAX_REQUEST, MAX_ANNOTATION = 64, 63
"""The longest annotations that are stored unhashed, in characters: a sha256 in hex, and a user's."""


class RunKey(NamedTuple):
    """The namespace and name of a Run."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class OwnerReference(Struct, frozen=True, gc=False):
    """An owner reference."""

    uid: str


_MAX_OWNERS, _MAX_UID = 4, 64


class WatchedMetadata(Struct, frozen=True, rename="camel"):
    """Metadata with the annotations of GKM only, hashed if they are long: the API server allows 256 KiB."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def __post_init__(self) -> None:
        given = self.annotations or {}
        annotations = {
            key: _hashed(given[key], longest)
            for key, longest in ((REQUEST_ANNOTATION, MAX_REQUEST), (REPLAN_ANNOTATION, MAX_ANNOTATION))
            if key in given
        }
        structs.force_setattr(self, "annotations", annotations)
        # An object of ours has one owner. A longer uid is of no object.
        owners = tuple(owner for owner in self.owner_references or () if len(owner.uid) <= _MAX_UID)
        structs.force_setattr(self, "owner_references", owners[:_MAX_OWNERS] or None)

    def annotation(self, key: str) -> str:
        """Return an annotation of GKM, "" without it."""
        return (self.annotations or {}).get(key, "")


def _hashed(text: str, longest: int) -> str:
    """Return a text; a longer one as its hash."""
    return text if len(text) <= longest else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:48]}"


class WatchedRun(Struct, frozen=True):
    """A Run."""

    metadata: WatchedMetadata
    given: RunSpec | None = field(name="spec")
    """None once it is decoded: `text` has it. A larger one stays, so that the refusal names its field."""
    status: RunStatus = field(default_factory=RunStatus)
    text: bytes = b""

    def __post_init__(self) -> None:
        if self.given is not None:
            structs.force_setattr(self, "text", msgspec.json.encode(self.given))
        if len(self.text) <= MAX_HELD_BYTES:
            structs.force_setattr(self, "given", None)

    @property
    def spec(self) -> RunSpec:
        """Return the spec, decoded anew: a run with many scopes takes a sixth of the memory as text."""
        return msgspec.json.decode(self.text, type=RunSpec)

    @property
    def key(self) -> RunKey:
        """Return namespace and name."""
        return RunKey(self.metadata.namespace, self.metadata.name)

    @property
    def request_hash(self) -> str:
        """Return the sha256, in hex, of the fields that decide a plan: all but priority and labels."""
        relevant = structs.replace(self.spec, priority=0, labels={})
        return hashlib.sha256(msgspec.json.encode(relevant, order="sorted")).hexdigest()

    @property
    def replan_annotation(self) -> str:
        """Return the annotation that requests a new plan, "" without it; a long one is hashed."""
        return self.metadata.annotation(REPLAN_ANNOTATION)


class WatchedPlan(Struct, frozen=True):
    """A PlacementPlan."""

    metadata: WatchedMetadata
    spec: PlanSpec
    status: PlanStatus = field(default_factory=PlanStatus)

    def is_equal_but_status(self, other: "WatchedPlan") -> bool:
        """Return whether another version of this object differs in status and resourceVersion only."""
        metadata = structs.replace(other.metadata, resource_version=self.metadata.resource_version)
        return (metadata, other.spec) == (self.metadata, self.spec)


RUNS = Resource(API_VERSION, "Run", "runs", namespaced=True, type=WatchedRun)
PLANS = Resource(
    API_VERSION,
    "PlacementPlan",
    "placementplans",
    namespaced=True,
    type=WatchedPlan,
    unbounded="only the controllers write it, and it names nodes of the cluster",
)
