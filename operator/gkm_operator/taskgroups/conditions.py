"""Compute the conditions of a task group, and the Events of their changes. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gkm.api.domain_readiness import MNNVL_READY_TYPE, MNNVLReadiness
from gkm.api.meta import FALSE, TRUE, UNKNOWN, Condition, with_condition
from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_groups import TaskGroup, TaskGroupStatus
from gkm.hoststate.escaping import escape
from gkm.kube.events import EventBody
from msgspec.structs import replace

CREATED, DELETED, NVLINK = "ObjectsCreated", "ObjectsDeleted", "NVLinkVerified"
MAX_MESSAGE = 1024
MAX_TEST_OUTPUT = 16 << 10
"""Limit of characters that are read of a termination message; kubelet cuts the messages of a pod to 12 kB."""

_BANDWIDTH = re.compile(r"avg bus bandwidth\s{0,16}:\s{0,16}(\d{1,9}(?:\.\d{1,9})?)(?![\w.])", re.ASCII | re.IGNORECASE)
_PROGRESS = frozenset({GroupReason.DELETING, GroupReason.TEST_RUNNING, GroupReason.ENDED})
"""Reasons of normal progress, which send no Event."""
UNFINISHED = frozenset({GroupReason.TEST_RUNNING, GroupReason.RETRYING})
"""Reasons of NVLinkVerified while there is no result: no watch shows that a Job lost its label."""


class ConditionCause(NamedTuple):
    """A condition of a TaskGroup without times: type, status, reason and message."""

    type: str
    status: str
    reason: str
    message: str


def with_verdicts(
    group: TaskGroup, status: TaskGroupStatus, verdicts: Iterable[ConditionCause], now: str
) -> TaskGroupStatus:
    """Return a TaskGroup's status with these conditions, for its present generation."""
    generation, conditions = group.metadata.generation, status.conditions
    for type_, value, reason, message in verdicts:
        text = escape(message)[:MAX_MESSAGE]
        conditions = with_condition(conditions, Condition(type_, value, reason, text, now, generation))
    return replace(status, observed_generation=generation, conditions=conditions)


def not_created(reason: GroupReason, message: str) -> ConditionCause:
    """Return the condition ObjectsCreated=False for a TaskGroup whose objects are not all created."""
    return ConditionCause(CREATED, FALSE, reason, message)


def not_deleted(reason: GroupReason, message: str) -> ConditionCause:
    """Return the condition ObjectsDeleted=False for a TaskGroup whose objects are not all gone."""
    return ConditionCause(DELETED, FALSE, reason, message)


def all_created(count: int) -> ConditionCause:
    """Return the condition ObjectsCreated=True for a TaskGroup with all its objects."""
    return ConditionCause(CREATED, TRUE, GroupReason.CREATED, f"{count} objects created")


def all_deleted(count: int) -> ConditionCause:
    """Return the condition ObjectsDeleted=True for a TaskGroup whose objects are gone."""
    return ConditionCause(DELETED, TRUE, GroupReason.DELETED, f"{count} objects are gone")


def mnnvl(readiness: MNNVLReadiness) -> ConditionCause:
    """Return the condition MNNVLReady of a TaskGroup, from its ComputeDomain's condition."""
    return ConditionCause(MNNVL_READY_TYPE, readiness.status, readiness.reason, readiness.message)


def nvlink(threshold: int, job: str | None, messages: Sequence[str]) -> ConditionCause:
    """Return the condition NVLinkVerified of a TaskGroup from the messages of its NVLink test's pods.

    `threshold` is in GB/s; `job` is "" until the Job is Complete or Failed, None if the Job went before its end was
    seen; `messages` are those with which its pods ended.
    """
    if job is None:
        why = "the Job of the test was deleted before its end was seen: create another group"
        return ConditionCause(NVLINK, UNKNOWN, GroupReason.NO_RESULT, why)
    if job == "Failed":
        return ConditionCause(
            NVLINK, FALSE, GroupReason.TEST_FAILED, "the Job of the test failed; its pods have the cause"
        )
    if not job:
        return ConditionCause(NVLINK, UNKNOWN, GroupReason.TEST_RUNNING, "the Job of the test is not complete")
    found = [float(each) for text in messages for each in _BANDWIDTH.findall(text[-MAX_TEST_OUTPUT:])]
    if not found:
        why = "no pod of the complete Job ended with a message that has 'Avg bus bandwidth : NUMBER'"
        return ConditionCause(NVLINK, UNKNOWN, GroupReason.NO_RESULT, f"{why}: write it to /dev/termination-log")
    slowest = f"{min(found):g} GB/s average bus bandwidth, at least {threshold} GB/s required"
    if min(found) < threshold:
        return ConditionCause(NVLINK, FALSE, GroupReason.BANDWIDTH_TOO_LOW, slowest)
    return ConditionCause(NVLINK, TRUE, GroupReason.BANDWIDTH_REACHED, slowest)


def nvlink_unread(message: str) -> ConditionCause:
    """Return the condition NVLinkVerified for a test whose Job or pods cannot be read now."""
    why = f"the Job of the test or its pods cannot be read: {message}"
    return ConditionCause(NVLINK, UNKNOWN, GroupReason.RETRYING, why)


def events(old: TaskGroupStatus, new: TaskGroupStatus) -> Iterator[EventBody]:
    """Yield the Events for a change of a TaskGroup's status: new problems, and the result of the NVLink test."""
    for type_ in (CREATED, DELETED, NVLINK):
        before, after = old.condition(type_), new.condition(type_)
        if after is None or (before is not None and before.reason == after.reason) or after.reason in _PROGRESS:
            continue
        if after.status != TRUE or type_ == NVLINK:
            yield EventBody("Normal" if after.status == TRUE else "Warning", after.reason, "Reconcile", after.message)
