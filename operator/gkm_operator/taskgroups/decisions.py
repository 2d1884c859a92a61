"""Decide the next step of a task group from its observed state. Pure.

Every step is one request at most, and the decision after it sees its result. A process that is killed between two steps
loses no object: the status names every object before it is created (docs/design/task-groups.md).
"""

from dataclasses import dataclass, field
from datetime import datetime

from gkm.api.grammar import listed
from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_groups import ENDED, FINALIZER, GroupObject, Outcome, TaskGroup, TaskGroupStatus
from msgspec.structs import replace

from gkm_operator.taskgroups import conditions
from gkm_operator.taskgroups.conditions import ConditionCause, with_verdicts
from gkm_operator.taskgroups.members import Living, Seen, Sight

CHECK_SECONDS = 30.0
"""Seconds before an object that is being deleted is checked again, and before its finalizers are reported."""
QUIET_SECONDS = 600.0
"""Seconds without a living pod after which a group has failed; the retries of a Job are six minutes apart at most."""
RECORD_SECONDS = 60.0
"""Limit of seconds until the status names a pod that succeeded, so that one write covers several."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Pods:
    """The task pods of a TaskGroup: how many have not ended, which succeeded, and the seconds since the last one ended.

    `seen` is whether there is or was any. `succeeded` are uids: those that the status names, and behind them others, no
    more than there are tasks. `unrecorded_seconds` is how long there have been others; infinite if one of them goes.
    """

    seen: bool = False
    living: int = 0
    succeeded: tuple[str, ...] = ()
    unrecorded_seconds: float = 0.0
    quiet_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """A TaskGroup with all that is known about its objects and pods.

    `strays` is whether the watches show any object with its uid. `trouble` is the failure of a request in this pass.
    """

    group: TaskGroup
    seen: tuple[Seen, ...]
    now: str
    pods: Pods = field(default_factory=Pods)
    strays: bool = False
    verdicts: tuple[ConditionCause, ...] = ()
    trouble: ConditionCause | None = None


@dataclass(frozen=True, slots=True)
class Finalize:
    """Step: add or remove GKM's finalizer on the TaskGroup."""

    present: bool


@dataclass(frozen=True, slots=True)
class RenderObjects:
    """Step: render the TaskGroup's objects, and write them to its status."""


@dataclass(frozen=True, slots=True)
class Create:
    """Step: create the object at `index` in the TaskGroup's status."""

    index: int


@dataclass(frozen=True, slots=True)
class Read:
    """Step: read the object at `index` in the TaskGroup's status, whose uid is not known."""

    index: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Step: delete the object at `index` in the TaskGroup's status, if it still has this uid."""

    index: int
    uid: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Step: write the TaskGroup's status."""

    status: TaskGroupStatus


@dataclass(frozen=True, slots=True)
class Done:
    """Step: end this pass; reconcile the TaskGroup again in `after` seconds, None: only after a change."""

    after: float | None = None


Step = Finalize | RenderObjects | Create | Read | Delete | WriteStatus | Done


def decide(observed: GroupObservation) -> Step:
    """Return the next step for a TaskGroup."""
    status = observed.group.status
    if status.phase in ENDED:
        return _ended(observed)
    if status.phase == "Ending":
        return _ending(observed)
    outcome = _outcome(observed)
    if outcome is not None:
        return _end(observed, outcome)
    return _running(observed) if status.phase == "Running" else _pending(observed)


def planned(observed: GroupObservation, objects: list[GroupObject]) -> WriteStatus:
    """Return the step that writes a TaskGroup's rendered objects to its status; a group without objects is running."""
    status = replace(observed.group.status, objects=objects)
    if objects:
        return _write(observed, status)
    return _write(observed, replace(status, phase="Running"), conditions.all_created(0))


def refused(observed: GroupObservation, reason: GroupReason, message: str) -> WriteStatus:
    """Return the step that ends a TaskGroup whose objects can never be created."""
    return _end(observed, "Failed", conditions.not_created(reason, message))


def _outcome(observed: GroupObservation) -> Outcome | None:
    """Return how a group ends now, None if it goes on."""
    group, pods = observed.group, observed.pods
    phase = group.spec.phase
    if phase is not None and phase != "Running":
        return phase
    if group.metadata.deletion_timestamp is not None:
        return "Canceled"
    if phase is not None or group.status.phase != "Running" or not (pods.seen and not pods.living):
        return None
    enough = len(pods.succeeded) >= max(1, len(group.spec.tasks))
    if enough and group.spec.tasks:
        return "Succeeded"
    if pods.quiet_seconds < QUIET_SECONDS:
        return None  # a Job may retry; and without a list of tasks, another pod may follow
    return "Succeeded" if enough else "Failed"


def _end(observed: GroupObservation, outcome: Outcome, *verdicts: ConditionCause) -> WriteStatus:
    """Return the step that begins the end; a group without objects is at its end."""
    status = replace(observed.group.status, outcome=outcome, succeeded_pods=[])
    if not verdicts and status.phase == "Pending":
        verdicts = (conditions.not_created(GroupReason.ENDED, "the group ended before its objects were created"),)
    if not status.objects:
        return _write(observed, replace(status, phase=outcome), *verdicts, conditions.all_deleted(0))
    deleting = conditions.not_deleted(GroupReason.DELETING, f"{len(status.objects)} objects are being deleted")
    return _write(observed, replace(status, phase="Ending"), *verdicts, deleting)


def _pending(observed: GroupObservation) -> Step:
    status = observed.group.status
    if observed.trouble is not None:
        return _changed(observed, status, observed.trouble) or Done()
    if FINALIZER not in observed.group.metadata.finalizers:
        return Finalize(present=True)
    return _create(observed) if status.objects else RenderObjects()


def _create(observed: GroupObservation) -> Step:
    objects = observed.group.status.objects
    for index, seen in enumerate(observed.seen):
        if seen is Sight.FOREIGN:
            message = f"{_name(objects[index])} exists, and this group did not create it: delete or rename one of them"
            return refused(observed, GroupReason.NAME_TAKEN, message)
        if not isinstance(seen, Living):
            return Create(index)
        if seen.terminating:
            message = f"{_name(objects[index])} is being deleted; it is created again once it is gone"
            waiting = conditions.not_created(GroupReason.RETRYING, message)
            return _changed(observed, observed.group.status, waiting) or Done(CHECK_SECONDS)
    created = [
        replace(each, state="Created", uid=seen.uid)
        for each, seen in zip(objects, observed.seen, strict=True)
        if isinstance(seen, Living)
    ]
    status = replace(observed.group.status, phase="Running", objects=created)
    return _write(observed, status, conditions.all_created(len(created)), *observed.verdicts)


def _running(observed: GroupObservation) -> Step:
    pods, verdicts = observed.pods, observed.verdicts
    status = replace(observed.group.status, pods_seen=pods.seen)
    unrecorded = len(pods.succeeded) > len(status.succeeded_pods)
    urgent = unrecorded and pods.unrecorded_seconds >= RECORD_SECONDS
    if urgent or _changed(observed, status, *verdicts):
        return _write(observed, replace(status, succeeded_pods=list(pods.succeeded)), *verdicts)
    waits = [CHECK_SECONDS] if any(each.reason in conditions.UNFINISHED for each in verdicts) else []
    waits += [RECORD_SECONDS - pods.unrecorded_seconds] if unrecorded else []
    if observed.group.spec.phase is None and pods.seen and not pods.living:
        waits.append(QUIET_SECONDS - pods.quiet_seconds)
    return Done(max(1.0, min(waits)) if waits else None)


def _ending(observed: GroupObservation) -> Step:
    status = observed.group.status
    objects, pending = list(status.objects), list[str]()
    for index, (each, seen) in reversed(list(enumerate(zip(status.objects, observed.seen, strict=True)))):
        if each.state == "Deleted" or seen in (Sight.GONE, Sight.FOREIGN):
            objects[index] = replace(each, state="Deleted", manifest=None)
        elif isinstance(seen, Living) and seen.terminating:
            pending.append(f"{_name(each)} (finalizers: {', '.join(seen.finalizers[:_SHOWN]) or 'not seen yet'})")
        elif uid := seen.uid if isinstance(seen, Living) else each.uid:
            return Delete(index, uid)
        else:
            return Read(index)
    if observed.trouble is not None:
        return _changed(observed, replace(status, objects=objects), observed.trouble) or Done()
    if not pending:
        ended = replace(status, phase=status.outcome or "Failed", objects=objects)
        return _write(observed, ended, conditions.all_deleted(len(objects)))
    if _seconds_since(status, observed.now) < CHECK_SECONDS:
        return Done(CHECK_SECONDS)
    message = f"{listed(pending, _SHOWN)} is deleted and not gone: its controllers remove the finalizers"
    stuck = conditions.not_deleted(GroupReason.FINALIZERS_PENDING, message)
    return _changed(observed, replace(status, objects=objects), stuck) or Done(CHECK_SECONDS)


def _ended(observed: GroupObservation) -> Step:
    metadata = observed.group.metadata
    finalized = metadata.deletion_timestamp is not None and FINALIZER in metadata.finalizers
    return Finalize(present=False) if finalized and not observed.strays else Done()


def _write(observed: GroupObservation, status: TaskGroupStatus, *verdicts: ConditionCause) -> WriteStatus:
    return WriteStatus(with_verdicts(observed.group, status, verdicts, observed.now))


def _changed(observed: GroupObservation, status: TaskGroupStatus, *verdicts: ConditionCause) -> WriteStatus | None:
    """Return the step that writes a status, None if it is written already."""
    write = _write(observed, status, *verdicts)
    return None if write.status == observed.group.status else write


def _seconds_since(status: TaskGroupStatus, now: str) -> float:
    """Return the seconds since the deletion began."""
    condition = status.condition(conditions.DELETED)
    began = condition.last_transition_time if condition else now
    try:
        return (datetime.fromisoformat(now) - datetime.fromisoformat(began)).total_seconds()
    except (ValueError, TypeError):
        return CHECK_SECONDS


def _name(each: GroupObject) -> str:
    return f"{each.kind} {each.name}"
