"""The plans that there are, of each run by number; also those that were sent and that the watch has not shown yet."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock

from gkm.api.plans import PlanSpec, PlanStatus
from gkm.hoststate.logs import fields
from gkm.packing.values import Group
from gkm.packing.written import PlanUnreadable, groups_of

from gkm_operator.plans.state.objects import AGAIN, ASKED, RunKey, WatchedPlan

_LOG = logging.getLogger(__name__)
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan that was made. `claims` are GPUs by node, spares included; `expires` is None where it never does.

    `version` is its resourceVersion, "" while no watch has shown it.
    """

    name: str
    run: RunKey
    owner: str
    number: int
    created: str
    asked: str
    again: str
    expires: datetime | None
    spec: PlanSpec
    groups: tuple[Group, ...]
    claims: Mapping[str, int]
    version: str = ""
    generation: int = 0
    status: PlanStatus = field(default_factory=PlanStatus)

    def expired(self, now: datetime) -> bool:
        """Return whether it holds nothing any more."""
        return self.expires is not None and now >= self.expires


def parse_plan(plan: WatchedPlan) -> PlanRecord | None:
    """Return a plan as it counts; None for one that is not named as ours are, or that cannot be read."""
    spec, meta = plan.spec, plan.metadata
    if meta.name != name_of(spec.run, spec.number):
        return None
    try:
        groups = groups_of(spec)
        expires = None if spec.expires_at is None else datetime.fromisoformat(spec.expires_at).astimezone(UTC)
    except (PlanUnreadable, ValueError, OverflowError) as error:
        _LOG.error("plan cannot be read", extra=fields(plan=f"{meta.namespace}/{meta.name}", why=str(error)))
        return None
    owner = meta.owner_references[0].uid if meta.owner_references else ""
    claims: dict[str, int] = {}
    for group in groups:
        for node, gpus in (*group.nodes, *((spare.node, spare.gpus) for spare in group.spares)):
            claims[node] = claims.get(node, 0) + gpus
    run = RunKey(meta.namespace, spec.run)
    asked, again = meta.annotation(ASKED), meta.annotation(AGAIN)
    created, shown = meta.creation_timestamp, (meta.resource_version, meta.generation, plan.status)
    return PlanRecord(meta.name, run, owner, spec.number, created, asked, again, expires, spec, groups, claims, *shown)


def name_of(run: str, number: int) -> str:
    """Return the name of a plan. A number has no hyphen, so the plans of no two runs share one."""
    return f"{run}-{number}"


class PlanIndex:
    """Thread-safe: a watch tells what there is, and the one that plans what it sends."""

    def __init__(self) -> None:
        self._shown: dict[Name, tuple[WatchedPlan, PlanRecord | None]] = {}
        self._sent: dict[Name, PlanRecord] = {}
        self._lock = Lock()

    def change(self, old: WatchedPlan | None, new: WatchedPlan | None) -> None:
        """Take in a difference of the watch. What it tells of, it knows better than whoever sent it."""
        plan = new or old
        if plan is None:
            return
        name = (plan.metadata.namespace, plan.metadata.name)
        read = None if new is None else self._read(name, new)
        with self._lock:
            self._sent.pop(name, None)
            if new is None:
                self._shown.pop(name, None)
            else:
                self._shown[name] = new, read

    def _read(self, name: Name, new: WatchedPlan) -> PlanRecord | None:
        """Return a plan as it counts. Where only its status is another, its groups are not unfolded again."""
        with self._lock:
            before, known = self._shown.get(name, (None, None))
        if before is None or known is None or not before.decides_as(new):
            return parse_plan(new)
        return replace(known, version=new.metadata.resource_version, status=new.status)

    def add_unconfirmed(self, plan: PlanRecord) -> None:
        """Count a plan from now on: it is about to be sent, and who knows when the answer comes."""
        with self._lock:
            self._sent[plan.run.namespace, plan.name] = plan

    def remove_unconfirmed(self, plan: PlanRecord) -> None:
        """Take back what was surely not made, or was made by another and is told by the watch."""
        with self._lock:
            self._sent.pop((plan.run.namespace, plan.name), None)

    def is_unconfirmed(self, plan: PlanRecord) -> bool:
        """Return whether the watch has not told of a plan that was sent."""
        with self._lock:
            return (plan.run.namespace, plan.name) in self._sent

    def plans(self) -> dict[RunKey, list[PlanRecord]]:
        """Return the plans that can be read, of each run by number."""
        with self._lock:
            found = [plan for _, plan in self._shown.values() if plan is not None] + list(self._sent.values())
        by_run: dict[RunKey, list[PlanRecord]] = {}
        for plan in sorted(found, key=lambda plan: plan.number):
            by_run.setdefault(plan.run, []).append(plan)
        return by_run

    def last_number(self, run: RunKey) -> int:
        """Return the highest number that a plan of a run has, also one that cannot be read; 0 where there is none."""
        begins = f"{run.name}-"
        with self._lock:
            names = [name for namespace, name in (*self._shown, *self._sent) if namespace == run.namespace]
        numbers = (name.removeprefix(begins) for name in names if name.startswith(begins))
        return max((int(text) for text in numbers if text.isascii() and text.isdigit()), default=0)
