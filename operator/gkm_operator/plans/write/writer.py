"""What is written: plans, once each; the status of runs; Events. What is lost on the way is found out later."""

import logging
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from gkm.api.plans import PlanStatus
from gkm.api.runs import RunStatus
from gkm.hoststate.logs import fields
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder

from gkm_operator.plans import plan_status
from gkm_operator.plans.planning.draft import PlanDraft
from gkm_operator.plans.state.objects import PLANS, RUNS, WatchedRun
from gkm_operator.plans.state.plan_index import PlanIndex, PlanRecord
from gkm_operator.plans.write import events as telling
from gkm_operator.plans.write import status

_LOG = logging.getLogger(__name__)

FIELD_MANAGER = "gkm-operator"
_FIRST_SERVER_ERROR = 500
_WEBHOOK_FAILED = "failed calling webhook"
"""What an API server answers, as an internal error, before anything is stored: that of one namespace stops no other."""
_REMEMBERED = 8192
_EXISTS = "AlreadyExists"
"""There are other conflicts at a create: two that count against one ResourceQuota."""
_LOOKED_FOR = 8
"""Plans that no watch tells of, in one sweep."""


class SendResult(Enum):
    """What became of a plan. OPEN: its answer was lost. ANOTHERS: a leader before made one of that name."""

    MADE = "made"
    OPEN = "open"
    ANOTHERS = "another's"
    REFUSED = "refused"


class NotLeading(RuntimeError):
    """The lease may be another's: nothing must be written any more."""


class _Written(NamedTuple):
    """A status, the resourceVersion that the watch showed when it was written, and that of the object with it."""

    shown: str
    version: str
    status: RunStatus


class PlanWriter:
    """Used by the one thread that plans. `leads` is asked before every write."""

    def __init__(self, api: Api, book: PlanIndex, recorder: Recorder, leads: Callable[[], bool]) -> None:
        self._api = api
        self._book = book
        self._recorder = recorder
        self._leads = leads
        self._open: list[PlanDraft] = []
        self._anothers: list[PlanRecord] = []
        self._unshown: list[PlanRecord] = []
        self.refusal = ""
        """What the API server said when it last refused a plan."""
        self._written: LRUCache[str, _Written] = LRUCache(_REMEMBERED)
        self._told: LRUCache[tuple[str, str], EventBody] = LRUCache(_REMEMBERED)
        self._said_of: LRUCache[tuple[str, str], str] = LRUCache(_REMEMBERED)

    def settle(self) -> bool:
        """Send again what may have been made or not; return whether it is known by now which plans there are.

        Raises:
            NotLeading: as it says.
        """
        while self._open:
            if self._send(self._open[0]) is SendResult.OPEN:
                return False
            # Also where the name is taken: most likely by what was sent before. The watch will tell.
            self._anothers.append(self._open.pop(0).counts)
        self._anothers = self._awaited(self._anothers)
        self._unshown = self._awaited(self._unshown)
        return not self._anothers

    def _awaited(self, plans: list[PlanRecord]) -> list[PlanRecord]:
        """Return those plans that the watch has yet to tell of. Of one that went unseen, it never will."""
        waiting = [plan for plan in plans if self._book.is_unconfirmed(plan)]
        return [plan for at, plan in enumerate(waiting) if at >= _LOOKED_FOR or not self._is_absent(plan)]

    def _is_absent(self, plan: PlanRecord) -> bool:
        """Return whether a plan that was sent is surely not there; then it counts no more."""
        where = ListSelector(namespace=plan.run.namespace, fields=f"metadata.name={plan.name}")
        try:
            there = any(page.entries or page.unreadable for page in self._api.list_pages(PLANS, where))
        except ApiError as error:
            _LOG.warning("plan not looked for", extra=fields(plan=f"{plan.run.namespace}/{plan.name}", why=str(error)))
            return False
        if not there:
            _LOG.warning("plan went unseen", extra=fields(plan=f"{plan.run.namespace}/{plan.name}"))
            self._book.remove_unconfirmed(plan)
        return not there

    def create(self, draft: PlanDraft) -> SendResult:
        """Make a plan. From before it is sent, it counts. Nothing more may be planned after OPEN and ANOTHERS.

        Raises:
            NotLeading: as it says.
        """
        self.check_leading()
        self._book.add_unconfirmed(draft.counts)
        sent = self._send(draft)
        if sent is SendResult.OPEN:
            self._open.append(draft)
        elif sent is SendResult.ANOTHERS:
            self._anothers.append(draft.counts)
        elif sent is SendResult.MADE:
            self._unshown.append(draft.counts)
        return sent

    def _send(self, draft: PlanDraft) -> SendResult:
        self.check_leading()
        plan = draft.counts
        name = f"{plan.run.namespace}/{plan.name}"
        try:
            self._api.create(PLANS, draft.value)
        except ApiError as error:
            if error.conflict and error.reason == _EXISTS:
                _LOG.info("plan is there already", extra=fields(plan=name))
                return SendResult.ANOTHERS
            if not _is_definite_failure(error):
                _LOG.warning("plan may be made or not", extra=fields(plan=name, why=str(error)))
                return SendResult.OPEN
            self._book.remove_unconfirmed(plan)
            self.refusal = str(error)
            _LOG.warning("plan not made", extra=fields(plan=name, why=self.refusal))
            return SendResult.REFUSED
        return SendResult.MADE

    def delete(self, plan: PlanRecord) -> None:
        """Delete an old plan, if it is there; what cannot be deleted now is tried again in a later sweep."""
        self.check_leading()
        try:
            self._api.delete(PLANS, plan.name, plan.run.namespace)
        except ApiError as error:
            if not error.not_found:
                _LOG.warning("old plan not deleted", extra=fields(plan=f"{plan.run}-{plan.number}", why=str(error)))

    def status(self, run: WatchedRun) -> RunStatus:
        """Return the status of a run, also if this process wrote it a moment ago and its watch lags behind."""
        return self._last(run).status

    def write_status(self, run: WatchedRun, new: RunStatus) -> None:
        """Write the status of a run; who was overtaken writes it in a later sweep, from what is there then."""
        self.check_leading()
        last, meta = self._last(run), run.metadata
        old = last.status
        try:
            value = status.apply_configuration(run, new, last.version)
            answer = self._api.apply(RUNS, value, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            if not (error.not_found or error.conflict):
                _LOG.warning("status not written", extra=fields(run=str(run.key), why=str(error)))
            return
        self._written.put(meta.uid, _Written(meta.resource_version, answer.metadata.resource_version, new))
        told, condition = telling.refusal_event(old, new), new.condition("Planned")
        if told is not None and condition is not None:
            self.emit(run, told, f"{meta.generation} {condition.last_transition_time}")

    def said(self, plan: PlanRecord) -> bool:
        """Return whether the status of a plan was written, and the watch does not show that yet."""
        return self._said_of.get((plan.run.namespace, plan.name)) == plan.version

    def say_of(self, plan: PlanRecord, new: PlanStatus) -> bool:
        """Write the status of a plan; return False where the API server did not take it.

        One that is gone, or was changed since the watch showed it, is left to a later sweep.
        """
        self.check_leading()
        key = (plan.run.namespace, plan.name)
        try:
            value = plan_status.applied(plan, new)
            self._api.apply(PLANS, value, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            if error.not_found or error.conflict:
                return True
            _LOG.warning("status of a plan not written", extra=fields(plan="/".join(key), why=str(error)))
            return False
        self._said_of.put(key, plan.version)
        return True

    def emit(self, run: WatchedRun, told: EventBody, occasion: str) -> None:
        """Tell something about a run, once; another process may have told it before."""
        key = (run.metadata.uid, f"{told.reason} {occasion}")
        if self._told.get(key):
            return
        self.check_leading()
        self._recorder.emit(telling.regarding(run), told, occasion)
        self._told.put(key, told)

    def _last(self, run: WatchedRun) -> "_Written":
        """Return the newest that is known of the status: what was shown, or what was written since."""
        shown = run.metadata.resource_version
        last = self._written.get(run.metadata.uid)
        return last if last is not None and last.shown == shown else _Written(shown, shown, run.status)

    def check_leading(self) -> None:
        """Go on only as a leader.

        Raises:
            NotLeading: the lease may be another's.
        """
        if not self._leads():
            raise NotLeading("the lease is not held any more")


def _is_definite_failure(error: ApiError) -> bool:
    """Return whether an API server that answered so has stored nothing, now and later."""
    if not error.status:
        return False
    return error.status < _FIRST_SERVER_ERROR or _WEBHOOK_FAILED in error.message
