"""Collect the facts about a task group for the next decision. It must never write.

A pod that succeeded counts although it is removed later: the status of its group names it. Until it does, this process
remembers the pods that went. The result of a test of NVLink is in the messages with which the pods of its Job ended.
Any user can set labels: a pod is the Job's if the Job is its controller.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from threading import Lock

from gkm.api import computedomains
from gkm.api.domain_readiness import parse_readiness
from gkm.api.meta import timestamp
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.task_groups import MAX_TASKS, NVLINK_TEST_ANNOTATION, GroupObject, TaskGroup
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock
from gkm.kube.api import Api, ListSelector
from gkm.kube.discovery import KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

from gkm_operator.pods import LISTED_PODS, ListedPod, WatchedPod
from gkm_operator.taskgroups import conditions
from gkm_operator.taskgroups.conditions import ConditionCause
from gkm_operator.taskgroups.decisions import CHECK_SECONDS, GroupObservation, Pods
from gkm_operator.taskgroups.members import JOB, GroupInventory, GroupMember, Living, Seen, Sight, watched
from gkm_operator.taskgroups.watcher import GroupWatcher, value_at

_MAX_PODS, _PAGE = 100, 10
"""Limits of pods that are read, and of pods in one page: a whole pod has up to 1.5 MB."""
_UID_LABEL = "batch.kubernetes.io/controller-uid"
"""The label of a Job's pods with the uid of the Job (Kubernetes 1.27)."""


def job_messages(api: Api, job: GroupMember) -> list[str]:
    """Return the termination messages of the containers of a Job's pods.

    Raises:
        ApiError: the pods cannot be listed.
    """
    selector = ListSelector(job.metadata.namespace, labels=f"{_UID_LABEL}={job.metadata.uid}")
    entries = chain.from_iterable(page.entries for page in api.list_pages(LISTED_PODS, selector, limit=_PAGE))
    pods = [entry.value for entry in islice(entries, _MAX_PODS) if _is_of(entry.value, job)]
    ended = (one.state.terminated for pod in pods for one in pod.containers)
    return [terminated.message for terminated in ended if terminated is not None]


def _is_of(pod: ListedPod, job: GroupMember) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.uid == job.metadata.uid


_MAX_GONE = 8192
"""Limit of groups whose deleted pods are remembered until the status names them."""
_MAX_WAITING = 65_536
"""Limit of groups with a running clock."""


class PodHistory:
    """Remembers which task pods of TaskGroups succeeded, including deleted ones. Thread-safe for different groups."""

    def __init__(self, watcher: GroupWatcher, clock: Clock) -> None:
        self._watcher = watcher
        self._gone: LRUCache[tuple[str, str], frozenset[tuple[str, str]]] = LRUCache(_MAX_GONE)
        self._lock = Lock()
        self._quiet, self._unrecorded = _Clocks(clock), _Clocks(clock)
        watcher.pod_changed.append(self._changed)

    def of(self, group: TaskGroup) -> Pods:
        """Return the facts about the pods of a TaskGroup."""
        status, uid = group.status, group.metadata.uid
        counts = status.phase in {"Pending", "Running"} and group.spec.phase is None
        pods, gone = self._watcher.pods_of(group), self._gone_of(group, remember=counts)
        living = sum(not pod.ended for pod in pods)
        seen = status.pods_seen or bool(pods) or bool(gone)
        recorded, succeeded = status.succeeded_pods, [pod for pod in pods if counts and pod.succeeded]
        leaving = {*gone, *_uids(pod for pod in succeeded if pod.metadata.deletion_timestamp is not None)}
        every = dict.fromkeys((*recorded, *sorted(leaving), *_uids(succeeded)))
        named = tuple(islice(every, max(1, len(group.spec.tasks))))
        unrecorded = self._unrecorded.seconds(uid, going=counts and len(named) > len(recorded))
        quiet = self._quiet.seconds(uid, going=counts and seen and not living)
        return Pods(seen, living, named, float("inf") if leaving - {*recorded} else unrecorded, quiet)

    def _changed(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        """Remember a pod that succeeded and is gone, if its group exists."""
        if old is None or not old.succeeded or (new is not None and new.metadata.uid == old.metadata.uid):
            return
        namespace, name = key = old.metadata.group
        if self._watcher.groups.get(name, namespace) is None:
            return  # or pods of no group would evict pods of others
        with self._lock:
            gone = self._gone.get(key) or frozenset()
            if len(gone) < MAX_TASKS:
                self._gone.put(key, gone | {(old.metadata.uid, old.metadata.creation_timestamp)})

    def _gone_of(self, group: TaskGroup, *, remember: bool) -> set[str]:
        """Return the pods of a group that went and that its status does not name; forget all others."""
        key, since = (group.metadata.namespace, group.metadata.name), group.metadata.creation_timestamp
        with self._lock:
            gone = self._gone.get(key)
            if gone is None:
                return set()
            recorded = frozenset(group.status.succeeded_pods)
            left = frozenset(each for each in gone if remember and each[0] not in recorded)
            if left:
                self._gone.put(key, left)
            else:
                self._gone.remove(key)
        return {uid for uid, created in left if created >= since}


class _Clocks:
    """How long something has been so, by the uid of a group; a clock that is not read as going is forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: LRUCache[str, float] = LRUCache(_MAX_WAITING)

    def seconds(self, uid: str, *, going: bool) -> float:
        if not going:
            self._began.remove(uid)
            return 0.0
        return self._clock() - self._began.get_or_create(uid, self._clock)


def _uids(pods: Iterable[WatchedPod]) -> list[str]:
    return [pod.metadata.uid for pod in pods]


_COMPUTE_DOMAIN = KindName(computedomains.GROUP, computedomains.KIND)
_MAX_DELETED, _MAX_TESTS = 65_536, 1024
_MAX_DIGITS = 7


class GroupObserver:
    """Collects the facts about TaskGroups. Thread-safe for different groups."""

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
        self._tests: LRUCache[tuple[str, bool], tuple[float, ConditionCause]] = LRUCache(_MAX_TESTS)
        self._deleted: LRUCache[str, tuple[float, Seen]] = LRUCache(_MAX_DELETED)

    def deleted(self, uid: str, seen: Seen) -> None:
        """Record a successful DELETE of an object, so that it is not repeated before the watch shows it."""
        self._deleted.put(uid, (float("inf") if seen is Sight.GONE else self._clock() + CHECK_SECONDS, seen))

    def observe(self, group: TaskGroup, known: Mapping[int, Seen], trouble: ConditionCause | None) -> GroupObservation:
        """Return the facts about a TaskGroup; `known` has newer facts about objects, by position in the status."""
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
        if found is not None and found.reason not in conditions.UNFINISHED:
            return  # it has a result, which stays when the Job goes
        for each in group.status.objects:
            if (threshold := _threshold(each)) is not None:
                job = next((one for one in members if one.kind == JOB and one.metadata.name == each.name), None)
                yield self._result(group.metadata.namespace, each, threshold, job)
                return

    def _result(self, namespace: str, each: GroupObject, threshold: int, job: GroupMember | None) -> ConditionCause:
        """Return the result of a test.

        A Job that no watch shows, and unreadable pods, are read at most once in CHECK_SECONDS.
        """
        if not each.uid or (job is not None and job.job != "Complete"):
            return conditions.nvlink(threshold, job.job if job is not None else "", ())
        key = each.uid, job is not None
        until, known = self._tests.get(key) or (0.0, None)
        if known is not None and self._clock() < until:
            return known
        try:
            job = job or self._live_job(namespace, each)
            messages = job_messages(self._api, job) if job is not None and job.job == "Complete" else ()
            verdict = conditions.nvlink(threshold, None if job is None else job.job, messages)
        except ApiError as error:
            verdict = conditions.nvlink_unread(error.message)
        self._tests.put(key, (self._clock() + CHECK_SECONDS, verdict))
        return verdict

    def _live_job(self, namespace: str, each: GroupObject) -> GroupMember | None:
        """Read the Job of a test that no watch shows; None if it is gone.

        A watch may not have shown it yet, or somebody took its label away.
        """
        resource = watched(Resource(each.api_version, each.kind, "jobs", namespaced=True, type=object))
        found = self._api.find(resource, each.name, namespace)
        return GroupMember.of(JOB, found) if found is not None and found.metadata.uid == each.uid else None


def _threshold(each: GroupObject) -> int | None:
    """Return the threshold of the Job of a test, in GB/s; None for any other object."""
    if each.manifest is None or KindName.of(each.api_version, each.kind) != JOB:
        return None
    text = str(value_at(each.manifest, "metadata", "annotations", NVLINK_TEST_ANNOTATION))[:_MAX_DIGITS]
    return int(text) if text.isascii() and text.isdecimal() else None
