"""Execute the decided steps of a task group, one request after another, until no step is left."""

from dataclasses import dataclass, field

from gkm.api.meta import timestamp
from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_groups import MAX_TEMPLATES, GroupObject, TaskGroup, TaskGroupStatus
from gkm.kube.api import Key
from gkm.kube.discovery import KindName
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder, Regarding
from gkm.kube.resources import TASKGROUPS, Json
from gkm.kube.workqueue import Retry

from gkm_operator.caches.throttling import EventBudget
from gkm_operator.taskgroups import conditions, decisions
from gkm_operator.taskgroups.conditions import ConditionCause
from gkm_operator.taskgroups.decisions import (
    Create,
    Delete,
    Done,
    Finalize,
    GroupObservation,
    Read,
    RenderObjects,
    Step,
    WriteStatus,
)
from gkm_operator.taskgroups.members import Living, Seen
from gkm_operator.taskgroups.observer import GroupObserver
from gkm_operator.taskgroups.planning import GroupRefused, TemplatePlanner, group_object, key_of
from gkm_operator.taskgroups.watcher import MAX_FINALIZERS, GroupWatcher, WatchedGroup
from gkm_operator.taskgroups.writer import GroupWriter

MAX_STEPS = 3 * MAX_TEMPLATES
"""Limit of steps of one pass, enough to create or delete a group of the largest size."""
REST_SECONDS = 1.0
"""Seconds until the next pass for a group that needs more steps."""
_FOR_GOOD = frozenset({400, 413, 422})
"""HTTP statuses that mean that the API server will never accept the object."""
_TOO_LARGE = 413
_SERVER_ERROR = 500
_NOT_STORED = ("too large", "larger than max")
"""Parts of etcd's messages about objects that it refuses to store; the HTTP status is then 500."""


@dataclass(slots=True)
class _Pass:
    """The knowledge of one pass: sights of objects by place in the status, rendered objects, the first failure."""

    known: dict[int, Seen] = field(default_factory=dict)
    rendered: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    failure: ApiError | Retry | None = None
    trouble: ConditionCause | None = None


class GroupReconciler:
    """Reconciles TaskGroups; one worker at a time handles a group. All memory is a cache."""

    def __init__(
        self,
        watcher: GroupWatcher,
        observer: GroupObserver,
        writer: GroupWriter,
        planner: TemplatePlanner,
        recorder: Recorder,
    ) -> None:
        self._watcher = watcher
        self._observer = observer
        self._writer = writer
        self._planner = planner
        self._recorder = recorder
        self._events = EventBudget()

    def reconcile(self, key: Key) -> float | None:
        """Execute the steps of a TaskGroup; return the seconds until the next pass, None if no pass is due.

        Raises:
            ApiError, Retry: a request failed, and the group must be reconciled again.
        """
        group: TaskGroup | None = self._watcher.group(key)
        this = _Pass()
        for _ in range(MAX_STEPS):
            if group is None:
                return None
            observed = self._observer.observe(group, this.known, this.trouble)
            step = decisions.decide(observed)
            if isinstance(group, WatchedGroup) and _needs_more(group, step):
                group = self._writer.read(group)
                continue
            if isinstance(step, Done):
                if this.failure is not None:
                    raise this.failure
                return step.after
            try:
                decided = step if isinstance(step, WriteStatus | Finalize) else self._request(observed, step, this)
            except GroupRefused as error:
                decided = decisions.refused(observed, error.reason, error.message)
            except (ApiError, Retry) as error:
                decided = self._failed(observed, step, error, this)
            if decided is not None:
                group = self._written(observed, decided)
        return REST_SECONDS

    def _request(self, observed: GroupObservation, step: Step, this: _Pass) -> WriteStatus | None:
        """Carry out a step that is no write of the group itself."""
        group = observed.group
        if isinstance(step, RenderObjects):
            rendered = self._planner.plan(group)
            planned = [group_object(each) for each in rendered]
            pairs = zip(rendered, planned, strict=True)
            this.rendered = {key_of(each): each for each, of_status in pairs if of_status.manifest is None}
            return decisions.planned(observed, planned)
        if isinstance(step, Create | Read | Delete):
            each = group.status.objects[step.index]
            kind = KindName.of(each.api_version, each.kind)
            if isinstance(step, Create):
                body = self._planner.body(group, each, self._content(group, each, this))
                this.known[step.index] = self._writer.create(group, body)
            elif isinstance(step, Read):
                this.known[step.index] = self._writer.read_object(group, kind, each.name)
            else:
                seen = self._writer.delete(group.metadata.namespace, kind, each.name, step.uid)
                self._observer.deleted(step.uid, seen)
                this.known[step.index] = seen
        return None

    def _content(self, group: TaskGroup, each: GroupObject, this: _Pass) -> Json | None:
        """Return an object as it was rendered; a Secret is rendered again, because the status does not have it."""
        if each.manifest is None and not this.rendered:
            this.rendered = {key_of(rendered): rendered for rendered in self._planner.plan(group)}
        return this.rendered.get((each.api_version, each.kind, each.name))

    def _failed(
        self, observed: GroupObservation, step: Step, error: ApiError | Retry, this: _Pass
    ) -> WriteStatus | None:
        """Remember a failure for the condition; other objects are still deleted, and no object is created after it."""
        if isinstance(error, ApiError) and error.unavailable:
            raise error
        ending = observed.group.status.phase == "Ending"
        message = error.message if isinstance(error, ApiError) else str(error)
        where = ""
        if isinstance(step, Create | Read | Delete):
            each = observed.group.status.objects[step.index]
            where = f"{each.kind} {each.name}: "
            if ending:
                this.known[step.index] = Living("", terminating=True)
        if isinstance(error, ApiError) and error.status in _FOR_GOOD and isinstance(step, Create):
            return decisions.refused(observed, GroupReason.REFUSED, where + message)
        reason = GroupReason.RETRYING
        if ending and isinstance(error, ApiError) and error.forbidden and "cannot delete" in message:
            reason = GroupReason.RIGHTS_MISSING
            message += "; add this kind to taskGroups.allowedKinds, and apply the output of `gkm template rights`"
        if this.failure is None:
            this.failure = error
            verdict = conditions.not_deleted if ending else conditions.not_created
            this.trouble = verdict(reason, where + message)
        return None

    def _written(self, observed: GroupObservation, step: WriteStatus | Finalize) -> TaskGroup | None:
        """Write a group; one whose objects the API server does not store in its status fails."""
        try:
            return self._write(observed.group, step)
        except ApiError as error:
            reason = _refusal(error)
            if isinstance(step, Finalize) or observed.group.status.phase != "Pending" or reason is None:
                raise
            message = f"the API server does not store the status with the objects of the group: {error.message}"
            return self._write(observed.group, decisions.refused(observed, reason, message))

    def _write(self, group: TaskGroup, step: WriteStatus | Finalize) -> TaskGroup | None:
        """Write a group; return it as it is then, None if it is gone."""
        try:
            if isinstance(step, Finalize):
                written = self._writer.finalize(group, present=step.present)
            else:
                written = self._writer.write_status(group, step.status)
        except ApiError as error:
            if error.conflict or error.not_found:
                self._watcher.forget((group.metadata.namespace, group.metadata.name))
            if not error.not_found:
                raise
            return None
        self._watcher.wrote(written)
        self._emit(written, group.status)
        return written

    def _emit(self, group: TaskGroup, before: TaskGroupStatus) -> None:
        meta = group.metadata
        regarding = Regarding(TASKGROUPS.api_version, TASKGROUPS.kind, meta.name, meta.namespace, meta.uid)
        for body in conditions.events(before, group.status):
            if self._events.spend(meta.uid):
                self._recorder.emit(regarding, body, timestamp()[:13])  # one an hour


def _needs_more(group: WatchedGroup, step: Step) -> bool:
    """Return whether a step needs what the watch does not hold: tasks, manifests, or all of many finalizers."""
    if isinstance(step, Finalize):
        return len(group.metadata.finalizers) >= MAX_FINALIZERS
    if isinstance(step, WriteStatus):
        return step.status.phase in {"Pending", "Running"} and step.status.objects != group.status.objects
    return isinstance(step, RenderObjects | Create)


def _refusal(error: ApiError) -> GroupReason | None:
    """Return the reason of a group whose status is not taken as it is; None if a later try may be."""
    of_etcd = error.status >= _SERVER_ERROR and any(part in error.message for part in _NOT_STORED)
    if error.status == _TOO_LARGE or of_etcd:
        return GroupReason.TOO_LARGE
    return GroupReason.REFUSED if error.status in _FOR_GOOD else None
