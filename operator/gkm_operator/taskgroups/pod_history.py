"""What became of the task pods of a group, also of those that are gone.

A pod that succeeded counts although it is removed later: the status of its group names it. Until it does, this process
remembers the pods that went. It must never write.
"""

from collections.abc import Iterable
from itertools import islice
from threading import Lock

from gkm.api.task_groups import MAX_TASKS, TaskGroup
from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock

from gkm_operator.pods import WatchedPod
from gkm_operator.taskgroups.decisions import Pods
from gkm_operator.taskgroups.watcher import GroupWatcher

_MAX_GONE = 8192
"""Groups with pods that went before the status names them: their next write does."""
_MAX_WAITING = 65_536
"""Groups with a clock. Only those have one that wait for the end of a time."""


class PodHistory:
    """Thread-safe for different groups."""

    def __init__(self, watcher: GroupWatcher, clock: Clock) -> None:
        self._watcher = watcher
        self._gone: LRUCache[tuple[str, str], frozenset[tuple[str, str]]] = LRUCache(_MAX_GONE)
        self._lock = Lock()
        self._quiet, self._unrecorded = _Clocks(clock), _Clocks(clock)
        watcher.pod_changed.append(self._changed)

    def of(self, group: TaskGroup) -> Pods:
        """Return what is known of the pods of a group now."""
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
            return  # or pods of no group would evict those of others
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
