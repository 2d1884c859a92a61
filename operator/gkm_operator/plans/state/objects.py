"""Runs and PlacementPlans as the controller watches them, reduced to the fields that it needs.

Plans are those that the watch shows, and those that this process created and the watch has yet to show.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from threading import Lock
from typing import NamedTuple

import msgspec
from gkm.api.meta import API_VERSION, GROUP, TRUE
from gkm.api.plans import STARTED, PlanSpec, PlanStatus
from gkm.api.runs import RunPods, RunSpec, RunStatus
from gkm.hoststate.logs import fields
from gkm.kube.api import Key
from gkm.kube.index import Index
from gkm.kube.memory import MAX_HELD_BYTES
from gkm.kube.resources import Resource
from gkm.packing.conversion import PlanUnreadable, groups_of
from gkm.packing.values import Group
from msgspec import Struct, structs

_LOG = logging.getLogger(__name__)


REQUEST_ANNOTATION = f"{GROUP}/asked"
"""Annotation of a plan: the SHA-256 of the request that it was made for."""
REPLAN_ANNOTATION = f"{GROUP}/plan-again"
"""Annotation of a Run: a new value requests a new plan. The plan stores the value that it was made for."""

MAX_REQUEST, MAX_ANNOTATION = 64, 63
"""Limits of characters of annotations that are kept as they are; longer ones are replaced by their hash."""


class RunKey(NamedTuple):
    """The namespace and name of a Run."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return the key as namespace/name."""
        return f"{self.namespace}/{self.name}"


class OwnerReference(Struct, frozen=True, gc=False):
    """An owner reference of an object, reduced to the owner's uid."""

    uid: str


_MAX_OWNERS, _MAX_UID = 4, 64


class WatchedMetadata(Struct, frozen=True, rename="camel"):
    """Metadata of a Run or PlacementPlan with GKM's annotations only, hashed if long: a user could fill 256 KiB."""

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
        """Return an annotation of GKM on the object, "" if absent."""
        return (self.annotations or {}).get(key, "")


def _hashed(text: str, longest: int) -> str:
    """Return a text; a longer one as its hash."""
    return text if len(text) <= longest else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:48]}"


class WatchedRun(Struct, frozen=True):
    """A Run as the controller's watch holds it: the spec is kept as JSON text."""

    metadata: WatchedMetadata
    given: RunSpec | None = msgspec.field(name="spec")
    """The spec until it is decoded, then None because `text` has it. A spec that is too large stays."""
    status: RunStatus = msgspec.field(default_factory=RunStatus)
    text: bytes = b""

    def __post_init__(self) -> None:
        if self.given is not None:
            structs.force_setattr(self, "text", msgspec.json.encode(self.given))
        if len(self.text) <= MAX_HELD_BYTES:
            structs.force_setattr(self, "given", None)

    @property
    def spec(self) -> RunSpec:
        """Return the decoded spec of the Run; each call decodes it, because the text takes a sixth of the memory."""
        return msgspec.json.decode(self.text, type=RunSpec)

    @property
    def key(self) -> RunKey:
        """Return namespace and name of the Run."""
        return RunKey(self.metadata.namespace, self.metadata.name)

    @property
    def request_hash(self) -> str:
        """Return the SHA-256 in hexadecimal of all fields that influence a plan: all except priority and labels."""
        relevant = structs.replace(self.spec, priority=0, labels={})
        return hashlib.sha256(msgspec.json.encode(relevant, order="sorted")).hexdigest()

    @property
    def replan_annotation(self) -> str:
        """Return the value of the annotation that requests a new plan, "" if absent; a long value is hashed."""
        return self.metadata.annotation(REPLAN_ANNOTATION)


class WatchedPlan(Struct, frozen=True):
    """A PlacementPlan as the controller's watch holds it."""

    metadata: WatchedMetadata
    spec: PlanSpec
    status: PlanStatus = msgspec.field(default_factory=PlanStatus)

    def is_equal_but_status(self, other: "WatchedPlan") -> bool:
        """Return whether another version of this plan differs in status and resourceVersion only."""
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


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A decoded PlacementPlan. `claims` are its GPUs by node, spares included; `expires` is None if it never expires.

    `version` is its resourceVersion, "" until the watch shows it.
    """

    name: str
    run: RunKey
    owner: str
    number: int
    created: str
    request_hash: str
    replan_annotation: str
    expires: datetime | None
    spec: PlanSpec
    groups: tuple[Group, ...]
    claims: Mapping[str, int]
    version: str = ""
    generation: int = 0
    status: PlanStatus = field(default_factory=PlanStatus)

    @property
    def key(self) -> Key:
        """Return namespace and name of the PlacementPlan."""
        return self.run.namespace, self.name

    @property
    def started(self) -> bool:
        """Return whether the plan's condition Started says that a pod has used its GPUs."""
        return any(one.type == STARTED and one.status == TRUE for one in self.status.conditions)

    def expired(self, now: datetime) -> bool:
        """Return whether the plan has expired at `now`."""
        return self.expires is not None and now >= self.expires


def parse_plan(plan: WatchedPlan) -> PlanRecord | None:
    """Decode a PlacementPlan; None if GKM does not give plans such a name, or if it is invalid, which is logged."""
    spec, meta = plan.spec, plan.metadata
    if meta.name != name_of(spec.run, spec.number):
        return None
    try:
        groups = groups_of(spec)
        expires = None if spec.expires_at is None else datetime.fromisoformat(spec.expires_at).astimezone(UTC)
    except (PlanUnreadable, ValueError, OverflowError) as error:
        _LOG.error(
            "invalid plan ignored, it reserves no GPUs",
            extra=fields(plan=f"{meta.namespace}/{meta.name}", why=str(error)),
        )
        return None
    owner = meta.owner_references[0].uid if meta.owner_references else ""
    run = RunKey(meta.namespace, spec.run)
    return PlanRecord(
        name=meta.name,
        run=run,
        owner=owner,
        number=spec.number,
        created=meta.creation_timestamp,
        request_hash=meta.annotation(REQUEST_ANNOTATION),
        replan_annotation=meta.annotation(REPLAN_ANNOTATION),
        expires=expires,
        spec=spec,
        groups=groups,
        claims=claims_of(groups),
        version=meta.resource_version,
        generation=meta.generation,
        status=plan.status,
    )


def claims_of(groups: Iterable[Group]) -> dict[str, int]:
    """Return the number of GPUs that groups claim on each node, spares included."""
    claims: dict[str, int] = {}
    for group in groups:
        for node, gpus in group.shares:
            claims[node] = claims.get(node, 0) + gpus
    return claims


def name_of(run: str, number: int) -> str:
    """Return the name of a Run's PlacementPlan with this number."""
    return f"{run}-{number}"


class PlanIndex:
    """Indexes plans by Run. Thread-safe: a watch changes it, and the planning thread adds the plans that it creates."""

    def __init__(self) -> None:
        self._shown: dict[Key, tuple[WatchedPlan, PlanRecord | None]] = {}
        self._unconfirmed: dict[Key, PlanRecord] = {}
        self._stored: Index[RunKey, PlanRecord] = Index(lambda plan: (plan.run,), lambda plan: plan.key)
        self._lock = Lock()

    def change(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        """Update the index after a change of a plan in the watch, which replaces an unconfirmed record of the plan."""
        plan = new or old
        if plan is None:
            return
        key = (plan.metadata.namespace, plan.metadata.name)
        with self._lock:
            before, earlier = self._shown.get(key, (None, None))
        record = None if new is None else _record(before, earlier, new)
        with self._lock:
            self._unconfirmed.pop(key, None)
            if new is None:
                self._shown.pop(key, None)
            else:
                self._shown[key] = new, record
            self._stored.change(earlier, record)

    def add_unconfirmed(self, plan: PlanRecord) -> None:
        """Add a plan before the request that creates it, so that its GPUs are reserved."""
        with self._lock:
            self._unconfirmed[plan.key] = plan

    def remove_unconfirmed(self, plan: PlanRecord) -> None:
        """Remove a plan that was certainly not created."""
        with self._lock:
            self._unconfirmed.pop(plan.key, None)

    def is_unconfirmed(self, plan: PlanRecord) -> bool:
        """Return whether the watch has not shown a plan yet."""
        with self._lock:
            return plan.key in self._unconfirmed

    def plans(self) -> dict[RunKey, list[PlanRecord]]:
        """Return the valid plans of each Run, sorted by number."""
        with self._lock:
            found = [plan for _, plan in self._shown.values() if plan is not None] + list(self._unconfirmed.values())
        by_run: dict[RunKey, list[PlanRecord]] = {}
        for plan in sorted(found, key=lambda plan: plan.number):
            by_run.setdefault(plan.run, []).append(plan)
        return by_run

    def newest_stored(self, run: RunKey, owner: str) -> PlanRecord | None:
        """Return the newest plan of the Run with this uid that the watch shows, None if it shows no plan."""
        own = [plan for plan in self._stored.get(run) if plan.owner == owner]
        return max(own, key=lambda plan: plan.number, default=None)

    def last_number(self, run: RunKey) -> int:
        """Return the highest plan number of a Run, including invalid plans; 0 if it has no plan."""
        prefix = f"{run.name}-"
        with self._lock:
            names = [name for namespace, name in (*self._shown, *self._unconfirmed) if namespace == run.namespace]
        numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return max((int(text) for text in numbers if text.isascii() and text.isdigit()), default=0)


def _record(before: WatchedPlan | None, record: PlanRecord | None, new: WatchedPlan) -> PlanRecord | None:
    """Return the record of a plan; if only its status changed, its groups are not parsed again."""
    if before is None or record is None or not before.is_equal_but_status(new):
        return parse_plan(new)
    return replace(record, version=new.metadata.resource_version, status=new.status)


class FollowReason(StrEnum):
    """Reasons of the condition Followed of a Run (docs/reference/reasons.md)."""

    FOLLOWED = "PodsWherePlanned"
    WAITING = "PodsWaiting"
    UNSCHEDULABLE = "PodsUnschedulable"
    DIVERGED = "PodsDiverged"


class PodsReport(NamedTuple):
    """Numbers of a Run's pods by state, and the reason and message of its condition Followed.

    Without pods, `counts` and `reason` are None, and the Run has no such condition. With `needs_plan`, the plan of the
    run has expired, and pods wait behind the gate for another one.
    """

    counts: RunPods | None = None
    reason: FollowReason | None = None
    message: str = ""
    needs_plan: bool = False


PodsReports = Callable[[RunKey], PodsReport | None]
"""Returns the report about a run's pods; None while they are not known, so that what the status says of them stays."""


def no_reports(_run: RunKey) -> PodsReport:
    """Return a report without pods, because pods have no gates."""
    return PodsReport()
