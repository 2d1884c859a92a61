"""The only writer of plans, of the status of runs and plans, and of Events.

A create whose response is lost leaves a plan that may or may not exist. The writer counts such a plan as created,
repeats the create in the next pass (`settle`), and lets no further run be planned until the watch shows the outcome. A
status for which no user waits is written seldom, for it must not load the API server.
"""

import logging
import math
import time
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from gkm.api.meta import API_VERSION
from gkm.api.plans import PlanStatus
from gkm.api.runs import RunStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock, MinimumInterval
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Regarding

from gkm_operator.plans.planning.assessment import PlanningResult, RunAssessment
from gkm_operator.plans.planning.draft import PlanDraft
from gkm_operator.plans.planning.refusals import CONDITION, RETRY_SECONDS
from gkm_operator.plans.state.objects import PLANS, RUNS, PlanIndex, PlanRecord, PodsReports, WatchedRun, no_reports
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from gkm_operator.plans.write.status import (
    apply_configuration,
    desired_plan_status,
    desired_status,
    differs_in_numbers_only,
    plan_apply_configuration,
    refusal_event,
)

_LOG = logging.getLogger(__name__)


FIELD_MANAGER = "gkm-operator"
_MAX_CACHED = 8192
_EXISTS = "AlreadyExists"
"""The reason that distinguishes an existing object from other conflicts: two creates that count against one
ResourceQuota conflict too."""
_MAX_LOOKUPS = 8
"""Limit of plans that one pass looks up because the watch has not shown them."""


class SendResult(Enum):
    """The outcome of a request that creates a plan. UNKNOWN: no response came.

    EXISTS: an earlier leader created a plan of that name.
    """

    CREATED = "created"
    UNKNOWN = "unknown"
    EXISTS = "exists"
    REFUSED = "refused"


class _WrittenStatus(NamedTuple):
    """A status, the resourceVersion that the watch showed before the write, and the object's version after it."""

    shown: str
    version: str
    status: RunStatus


class PlanWriter:
    """Writes plans and statuses for the planning thread.

    Each write raises NotLeading if this process is not the leader.
    """

    def __init__(self, api: Api, index: PlanIndex, recorder: Recorder) -> None:
        self._api = api
        self._index = index
        self._recorder = recorder
        self._unknown: list[PlanDraft] = []
        self._existing: list[PlanRecord] = []
        self._unshown: list[PlanRecord] = []
        self.refusal = ""
        """The message of the API server when it last refused a plan."""
        self._written: LRUCache[str, _WrittenStatus] = LRUCache(_MAX_CACHED)
        self._emitted: LRUCache[tuple[str, str], EventBody] = LRUCache(_MAX_CACHED)
        self._sent_plans: LRUCache[Key, tuple[str, float]] = LRUCache(_MAX_CACHED)
        """The version of a plan whose status was sent, and the monotonic time until which it is not sent again."""

    def settle(self) -> bool:
        """Repeat creations of plans whose outcome is unknown; return whether all outcomes are known now.

        Raises:
            NotLeading: this process must not write any more.
        """
        while self._unknown:
            if self._send(self._unknown[0]) is SendResult.UNKNOWN:
                return False
            # Also if the name is taken: most likely by the first create. The watch will show it.
            self._existing.append(self._unknown.pop(0).counts)
        self._existing = self._unconfirmed(self._existing)
        self._unshown = self._unconfirmed(self._unshown)
        return not self._existing

    def _unconfirmed(self, plans: list[PlanRecord]) -> list[PlanRecord]:
        """Return the plans that the watch has yet to show. It never shows a plan that was deleted unseen."""
        waiting = [plan for plan in plans if self._index.is_unconfirmed(plan)]
        return [plan for at, plan in enumerate(waiting) if at >= _MAX_LOOKUPS or not self._is_absent(plan)]

    def _is_absent(self, plan: PlanRecord) -> bool:
        """Return whether a plan certainly does not exist; the index drops such a plan."""
        selector = ListSelector(namespace=plan.run.namespace, fields=f"metadata.name={plan.name}")
        log_fields = fields(plan="/".join(plan.key))
        try:
            exists = any(page.entries or page.unreadable for page in self._api.list_pages(PLANS, selector))
        except ApiError as error:
            _LOG.warning(
                "lookup of a new plan failed, its GPUs stay reserved", extra=log_fields | fields(why=str(error))
            )
            return False
        if not exists:
            _LOG.warning("new plan not found on the API server, its GPUs are free again", extra=log_fields)
            self._index.remove_unconfirmed(plan)
        return not exists

    def create(self, draft: PlanDraft) -> SendResult:
        """Create a PlacementPlan; its GPUs are reserved from before the request.

        After UNKNOWN and EXISTS, the pass plans no more runs.

        Raises:
            NotLeading: this process must not write any more.
        """
        self._index.add_unconfirmed(draft.counts)
        result = self._send(draft)
        if result is SendResult.UNKNOWN:
            self._unknown.append(draft)
        elif result is SendResult.EXISTS:
            self._existing.append(draft.counts)
        elif result is SendResult.CREATED:
            self._unshown.append(draft.counts)
        return result

    def _send(self, draft: PlanDraft) -> SendResult:
        plan = draft.counts
        log_fields = fields(plan="/".join(plan.key))
        try:
            self._api.create(PLANS, draft.value)
        except ApiError as error:
            if error.conflict and error.reason == _EXISTS:
                _LOG.info("plan of this name exists already, kept as it is", extra=log_fields)
                return SendResult.EXISTS
            if not error.definite:
                _LOG.warning(
                    "outcome of plan creation unknown, its GPUs stay reserved until a lookup",
                    extra=log_fields | fields(why=str(error)),
                )
                return SendResult.UNKNOWN
            self._index.remove_unconfirmed(plan)
            self.refusal = str(error)
            _LOG.warning(
                "plan refused by the API server, its Run is planned again later",
                extra=log_fields | fields(why=self.refusal),
            )
            return SendResult.REFUSED
        return SendResult.CREATED

    def delete(self, plan: PlanRecord) -> None:
        """Delete an old plan; after a failure, a later pass tries again."""
        try:
            self._api.delete(PLANS, plan.name, plan.run.namespace)
        except ApiError as error:
            if not error.not_found:
                _LOG.warning(
                    "old plan not deleted, a later pass tries again",
                    extra=fields(plan="/".join(plan.key), why=str(error)),
                )

    def status(self, run: WatchedRun) -> RunStatus:
        """Return the status of a Run, including a write of this process that the watch has not shown yet."""
        return self._last_status(run).status

    def write_status(self, run: WatchedRun, new: RunStatus) -> None:
        """Write the status of a Run; after a conflict, a later pass tries again."""
        last, meta = self._last_status(run), run.metadata
        try:
            value = apply_configuration(run, new, last.version)
            stored = self._api.apply(RUNS, value, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            if not (error.not_found or error.conflict):
                _LOG.warning(
                    "Run status not written, a later pass tries again", extra=fields(run=str(run.key), why=str(error))
                )
            return
        self._written.put(meta.uid, _WrittenStatus(meta.resource_version, stored.metadata.resource_version, new))
        event, condition = refusal_event(last.status, new), new.condition(CONDITION)
        if event is not None and condition is not None:
            self.emit(run, event, f"{meta.generation} {condition.last_transition_time}")

    def is_plan_status_pending(self, plan: PlanRecord) -> bool:
        """Return whether the watch has yet to show a status that this process wrote, or a refused one is too recent."""
        version, until = self._sent_plans.get(plan.key) or ("", 0.0)
        return version == plan.version and time.monotonic() < until

    def write_plan_status(self, plan: PlanRecord, new: PlanStatus) -> bool:
        """Write the status of a plan; return False if the API server does not answer.

        A plan that was deleted, or has changed since the watch showed it, is left to a later pass. A status that the
        API server refuses is sent again after RETRY_SECONDS, and stops no other.
        """
        until = math.inf
        try:
            value = plan_apply_configuration(plan, new)
            self._api.apply(PLANS, value, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            if error.not_found or error.conflict:
                return True
            _LOG.warning(
                "plan status not written, a later pass tries again",
                extra=fields(plan="/".join(plan.key), why=str(error)),
            )
            if not error.definite:
                return False
            until = time.monotonic() + RETRY_SECONDS
        self._sent_plans.put(plan.key, (plan.version, until))
        return True

    def emit(self, run: WatchedRun, event: EventBody, occasion: str) -> None:
        """Send an Event about a Run once for each occasion."""
        meta = run.metadata
        key = (meta.uid, f"{event.reason} {occasion}")
        if self._emitted.get(key):
            return
        self._recorder.emit(Regarding(API_VERSION, "Run", meta.name, meta.namespace, meta.uid), event, occasion)
        self._emitted.put(key, event)

    def _last_status(self, run: WatchedRun) -> _WrittenStatus:
        """Return the newest known status: either from the watch, or written by this process since."""
        shown = run.metadata.resource_version
        last = self._written.get(run.metadata.uid)
        return last if last is not None and last.shown == shown else _WrittenStatus(shown, shown, run.status)


MAX_REFUSALS = 50
"""Limit of statuses of refused runs that one pass writes."""
NUMBERS_SECONDS = 30.0
"""Minimum seconds between two statuses of a refused run that differ in numbers only."""
MAX_PLAN_STATUSES = 50
"""Limit of plan statuses that one pass writes."""


class StatusThrottle:
    """Limits status writes of Runs and plans. Only the planning thread may use it."""

    def __init__(self, writer: PlanWriter, clock: Clock, pods: PodsReports = no_reports) -> None:
        self._writer = writer
        self._pods = pods
        self._now = ""
        self._left = 0
        self._numbers: MinimumInterval[str] = MinimumInterval(NUMBERS_SECONDS, clock)
        self.held_back = False

    def begin(self, now: str) -> None:
        """Begin a pass; `now` is a Kubernetes timestamp."""
        self._now = now
        self._left = MAX_REFUSALS
        self.held_back = False

    def retain_only(self, uids: Collection[str]) -> None:
        """Forget all Runs whose uid is not among `uids`."""
        self._numbers.retain_only(uids)

    def report(self, run: WatchedRun, result: PlanningResult) -> None:
        """Write the status of a Run if it changed; set `held_back` if a later pass must write it."""
        old = self._writer.status(run)
        new = desired_status(run, old, result, self._now, self._pods(run.key))
        if new == old:
            return
        uid = run.metadata.uid
        if result.unfit is not None:
            if not self._left or (not self._numbers.has_passed(uid) and differs_in_numbers_only(old, new)):
                self.held_back = True
                return
            self._left -= 1
        self._numbers.record(uid)
        self._writer.write_status(run, new)

    def report_plans(
        self, cases: Iterable[RunAssessment], snapshot: ClusterSnapshot, created: Mapping[str, PlanRecord]
    ) -> bool:
        """Write the changed statuses of plans in a snapshot; return whether all are current.

        `created` has the plans that are newer than the snapshot, by the uid of their run. A plan that the watch has not
        shown is left to a later pass. The first write without an answer ends this one.

        Raises:
            NotLeading: this process must not write any more.
        """
        left = MAX_PLAN_STATUSES
        for case in cases:
            current = created.get(case.uid, case.plan)
            if current is None or case.run.metadata.deletion_timestamp is not None:
                continue
            for plan in snapshot.plans.get(case.run.key, ()):
                if plan.owner != case.uid or not plan.version:
                    continue
                started = case.started and plan is case.plan
                new = desired_plan_status(plan, current, self._now, over=case.over, started=started)
                if new == plan.status or self._writer.is_plan_status_pending(plan):
                    continue
                if not left:
                    return False
                left -= 1
                if not self._writer.write_plan_status(plan, new):
                    return False
        return True
