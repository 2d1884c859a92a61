"""The knowledge about a task group at one moment, for a decision about it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from gkm.api import computedomains
from gkm.api.domain_readiness import parse_readiness
from gkm.api.meta import timestamp
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.task_group_reasons import GroupReason
from gkm.api.task_groups import NVLINK_TEST_ANNOTATION, GroupObject, TaskGroup
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api
from gkm.kube.discovery import KindName
from gkm.kube.errors import ApiError

from gkm_operator.taskgroups import conditions, nvlink_results
from gkm_operator.taskgroups.conditions import ConditionCause
from gkm_operator.taskgroups.decisions import LOOK_SECONDS, GroupObservation
from gkm_operator.taskgroups.inventory import GroupInventory, Living, Seen, Sight
from gkm_operator.taskgroups.members import JOB, GroupMember
from gkm_operator.taskgroups.pod_history import PodHistory
from gkm_operator.taskgroups.watcher import GroupWatcher

_COMPUTE_DOMAIN = KindName(computedomains.GROUP, computedomains.KIND)
_MAX_DELETED, _MAX_TESTS = 65_536, 1024
_MAX_DIGITS = 7


class GroupObserver:
    """Thread-safe for different groups."""

    def __init__(
        self,
        api: Api,
        watcher: GroupWatcher,
        inventory: GroupInventory,
        *,
        now: Callable[[], str] = timestamp,
        clock: Clock = time.monotonic,
    ) -> None:
        self._api = api
        self._watcher = watcher
        self._inventory = inventory
        self._now = now
        self._clock = clock
        self._pods = PodHistory(watcher, clock)
        self._unread: LRUCache[str, tuple[float, ConditionCause]] = LRUCache(_MAX_TESTS)
        self._deleted: LRUCache[str, tuple[float, Seen]] = LRUCache(_MAX_DELETED)

    def deleted(self, uid: str, seen: Seen) -> None:
        """Record the result of a DELETE: until the watch shows it, or for LOOK_SECONDS, no request repeats that."""
        self._deleted.put(uid, (float("inf") if seen is Sight.GONE else self._clock() + LOOK_SECONDS, seen))

    def observe(self, group: TaskGroup, known: Mapping[int, Seen], trouble: ConditionCause | None) -> GroupObservation:
        """Return what is known; `known` are sights of objects, by their place in the status, that are newer."""
        members = self._inventory.members((group.metadata.namespace, group.metadata.name), group.metadata.uid)
        seen = (known.get(index) or self._seen(group, each) for index, each in enumerate(group.status.objects))
        to_end = group.spec.phase not in {None, "Running"} or group.metadata.deletion_timestamp is not None
        going_on = group.status.phase in {"Pending", "Running"} and not to_end
        return GroupObservation(
            group,
            tuple(seen),
            self._now(),
            self._pods.of(group),
            strays=bool(members),
            verdicts=tuple(self._verdicts(group, members)) if going_on else (),
            trouble=trouble,
        )

    def _seen(self, group: TaskGroup, each: GroupObject) -> Seen:
        kind, metadata = KindName.of(each.api_version, each.kind), group.metadata
        seen = self._inventory.sight((metadata.namespace, metadata.name), metadata.uid, kind, each.name, each.uid)
        uid = seen.uid if isinstance(seen, Living) else each.uid
        until, result = self._deleted.get(uid) or (0.0, seen)
        known = seen is Sight.GONE or (isinstance(seen, Living) and seen.terminating)
        return seen if known or self._clock() >= until else result

    def _verdicts(self, group: TaskGroup, members: Sequence[GroupMember]) -> Iterator[ConditionCause]:
        """Yield the conditions that are about certain kinds of objects."""
        for member in members:
            if member.kind == _COMPUTE_DOMAIN:
                readiness = parse_readiness((member.metadata.annotations or {}).get(MNNVL_READY))
                if readiness is not None:
                    yield conditions.mnnvl(readiness)
        found = group.status.condition(conditions.NVLINK)
        if found is not None and found.reason not in {GroupReason.TEST_RUNNING, GroupReason.RETRYING}:
            return  # it has a result, which stays when the Job goes
        for each in group.status.objects:
            if (threshold := _threshold(each)) is not None:
                job = next((one for one in members if one.kind == JOB and one.metadata.name == each.name), None)
                yield self._result(threshold, job)
                return

    def _result(self, threshold: int, job: GroupMember | None) -> ConditionCause:
        """Return the result of a test; the pods of one that cannot be read are read again after LOOK_SECONDS."""
        if job is None or job.job != "Complete":
            return conditions.nvlink(threshold, job.job if job is not None else "", ())
        until, unread = self._unread.get(job.metadata.uid) or (0.0, None)
        if unread is not None and self._clock() < until:
            return unread
        try:
            return conditions.nvlink(threshold, job.job, nvlink_results.messages(self._api, job))
        except ApiError as error:
            verdict = conditions.nvlink_unread(error.message)
            self._unread.put(job.metadata.uid, (self._clock() + LOOK_SECONDS, verdict))
            return verdict


def _threshold(each: GroupObject) -> int | None:
    """Return the threshold of the Job of a test, in GB/s; None for any other object."""
    if each.manifest is None or KindName.of(each.api_version, each.kind) != JOB:
        return None
    annotations = each.manifest.get("metadata", {}).get("annotations") or {}
    text = str(annotations.get(NVLINK_TEST_ANNOTATION, ""))[:_MAX_DIGITS]
    return int(text) if text.isascii() and text.isdecimal() else None
