"""All plans by run: those that the watch shows, and those that this process created and the watch has yet to show."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock

from gkm.api.meta import TRUE
from gkm.api.plans import STARTED, PlanSpec, PlanStatus
from gkm.hoststate.logs import fields
from gkm.kube.api import Key
from gkm.packing.conversion import PlanUnreadable, groups_of
from gkm.packing.values import Group

from gkm_operator.plans.state.objects import REPLAN_ANNOTATION, REQUEST_ANNOTATION, RunKey, WatchedPlan

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan, parsed. `claims` are its GPUs by node, with spares; `expires` is None if it never expires.

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
        """Return namespace and name."""
        return self.run.namespace, self.name

    @property
    def started(self) -> bool:
        """Return whether it is known that a pod of the run had GPUs while the plan was the newest."""
        return any(one.type == STARTED and one.status == TRUE for one in self.status.conditions)

    def expired(self, now: datetime) -> bool:
        """Return whether it has expired."""
        return self.expires is not None and now >= self.expires


def parse_plan(plan: WatchedPlan) -> PlanRecord | None:
    """Return the record of a plan, None if its name is not one of GKM or it cannot be parsed."""
    spec, meta = plan.spec, plan.metadata
    if meta.name != name_of(spec.run, spec.number):
        return None
    try:
        groups = groups_of(spec)
        expires = None if spec.expires_at is None else datetime.fromisoformat(spec.expires_at).astimezone(UTC)
    except (PlanUnreadable, ValueError, OverflowError) as error:
        _LOG.error("plan cannot be parsed", extra=fields(plan=f"{meta.namespace}/{meta.name}", why=str(error)))
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
    """Return the GPUs of groups by node, with spares."""
    claims: dict[str, int] = {}
    for group in groups:
        for node, gpus in group.shares:
            claims[node] = claims.get(node, 0) + gpus
    return claims


def name_of(run: str, number: int) -> str:
    """Return the name of a plan. A number has no hyphen, so plans of different runs have different names."""
    return f"{run}-{number}"


class PlanIndex:
    """Plans by name. Thread-safe: a watch changes it, and the planning thread adds the plans that it creates."""

    def __init__(self) -> None:
        self._shown: dict[Key, tuple[WatchedPlan, PlanRecord | None]] = {}
        self._unconfirmed: dict[Key, PlanRecord] = {}
        self._lock = Lock()

    def change(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        """Apply a change that the watch reports; it replaces the unconfirmed record of the plan."""
        plan = new or old
        if plan is None:
            return
        key = (plan.metadata.namespace, plan.metadata.name)
        record = None if new is None else self._record(key, new)
        with self._lock:
            self._unconfirmed.pop(key, None)
            if new is None:
                self._shown.pop(key, None)
            else:
                self._shown[key] = new, record

    def _record(self, key: Key, new: WatchedPlan) -> PlanRecord | None:
        """Return the record of a plan; if only its status changed, its groups are not parsed again."""
        with self._lock:
            before, record = self._shown.get(key, (None, None))
        if before is None or record is None or not before.is_equal_but_status(new):
            return parse_plan(new)
        return replace(record, version=new.metadata.resource_version, status=new.status)

    def add_unconfirmed(self, plan: PlanRecord) -> None:
        """Count a plan from now on, before the request that creates it."""
        with self._lock:
            self._unconfirmed[plan.key] = plan

    def remove_unconfirmed(self, plan: PlanRecord) -> None:
        """Remove a plan that was certainly not created."""
        with self._lock:
            self._unconfirmed.pop(plan.key, None)

    def is_unconfirmed(self, plan: PlanRecord) -> bool:
        """Return whether the watch has yet to show a plan."""
        with self._lock:
            return plan.key in self._unconfirmed

    def plans(self) -> dict[RunKey, list[PlanRecord]]:
        """Return the valid plans of each run, sorted by number."""
        with self._lock:
            found = [plan for _, plan in self._shown.values() if plan is not None] + list(self._unconfirmed.values())
        by_run: dict[RunKey, list[PlanRecord]] = {}
        for plan in sorted(found, key=lambda plan: plan.number):
            by_run.setdefault(plan.run, []).append(plan)
        return by_run

    def last_number(self, run: RunKey) -> int:
        """Return the highest number among the plans of a run, invalid ones included; 0 without any."""
        prefix = f"{run.name}-"
        with self._lock:
            names = [name for namespace, name in (*self._shown, *self._unconfirmed) if namespace == run.namespace]
        numbers = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        return max((int(text) for text in numbers if text.isascii() and text.isdigit()), default=0)
