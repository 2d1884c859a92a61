"""The watches of pools, templates, task groups and their pods, with the indexes that controllers ask."""

from collections import Counter
from collections.abc import Callable

from gkm.api.task_groups import ENDED, GROUP_LABEL, GroupTemplate, Pool, TaskGroup
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, Reflector

from gkm_operator import metrics
from gkm_operator.pods import PODS, WatchedPod, is_task
from gkm_operator.taskgroups.watched import WATCHED_GROUPS, WATCHED_POOLS, WATCHED_TEMPLATES, WatchedGroup

_MAX_WRITTEN = 1024
"""Groups whose last write is remembered: many more than the watch of a healthy API server lags behind."""
_PHASES = ("Pending", "Running", "Ending", *sorted(ENDED))


class GroupWatcher:
    """`group_changed` gets the keys of groups that changed, or whose pods did; the lists of others get changes."""

    def __init__(self, api: Api, informers: Informers, group_changed: Callable[[Key], None]) -> None:
        self.pool_changed: list[OnChange[Pool]] = []
        self.template_changed: list[OnChange[GroupTemplate]] = []
        self.pod_changed: list[OnChange[WatchedPod]] = []
        self._group_changed = group_changed
        self._written: LRUCache[Key, WatchedGroup | None] = LRUCache(_MAX_WRITTEN)
        self._phases: Counter[str] = Counter()
        self._pods: Index[Key, WatchedPod] = Index(lambda pod: (pod.metadata.group,), lambda pod: pod.metadata.uid)
        self._pools: Index[str, Pool] = Index(
            lambda pool: pool.spec.common_group_templates, lambda pool: pool.metadata.name
        )
        self.pools = Reflector(api, WATCHED_POOLS, self._pool)
        self.templates = Reflector(api, WATCHED_TEMPLATES, self._template)
        self.groups = Reflector(api, WATCHED_GROUPS, self._group)
        selector = ListSelector(labels=GROUP_LABEL)
        self.pods = informers.select(PODS, self._pod, wants=is_task, selector=selector)
        self.watches = (self.pools, self.templates, self.pods, self.groups)

    def group(self, key: Key) -> WatchedGroup | None:
        """Return what is held of a group as last observed, or as this process wrote it since; None if it is gone."""
        observed, written = self.groups.get(key[1], key[0]), self._written.get(key)
        return written if observed and written and _is_newer(written, observed) else observed

    def wrote(self, group: TaskGroup) -> None:
        """Use what a write returned until the watch shows it."""
        self._written.put((group.metadata.namespace, group.metadata.name), WatchedGroup.of(group))

    def forget(self, key: Key) -> None:
        """Use what the watch shows: another writer was faster."""
        self._written.put(key, None)

    def living(self, key: Key) -> str:
        """Return the uid of a group that exists and has not ended, as last observed; "" without one."""
        group = self.groups.get(key[1], key[0])
        return group.metadata.uid if group is not None and group.status.phase not in ENDED else ""

    def pods_of(self, group: TaskGroup) -> list[WatchedPod]:
        """Return the task pods of a group; not those of an earlier group of the same name."""
        pods = self._pods.get((group.metadata.namespace, group.metadata.name))
        # Times in metadata are in whole seconds, in UTC, so that they are in the order of their text.
        return [pod for pod in pods if pod.metadata.creation_timestamp >= group.metadata.creation_timestamp]

    def pools_with(self, template: str) -> tuple[Pool, ...]:
        """Return the pools that name a template."""
        return self._pools.get(template)

    def _group(self, old: WatchedGroup | None, new: WatchedGroup | None) -> None:
        for value, change in ((old, -1), (new, 1)):
            if value is not None:
                self._phases[value.status.phase] += change
        for phase in _PHASES:
            metrics.TASK_GROUPS.labels(phase).set(self._phases[phase])
        if (group := new or old) is None:
            return
        key = group.metadata.namespace, group.metadata.name
        written = self._written.get(key)
        if written is not None and (new is None or not _is_newer(written, new)):
            self.forget(key)
        self._group_changed(key)

    def _pod(self, old: WatchedPod | None, new: WatchedPod | None) -> None:
        for call in self.pod_changed:  # before the index, so that a pod that goes is never in neither
            call(old, new)
        self._pods.change(old, new)
        for key in {pod.metadata.group for pod in (old, new) if pod is not None}:
            self._group_changed(key)

    def _pool(self, old: Pool | None, new: Pool | None) -> None:
        self._pools.change(old, new)
        for call in self.pool_changed:
            call(old, new)

    def _template(self, old: GroupTemplate | None, new: GroupTemplate | None) -> None:
        for call in self.template_changed:
            call(old, new)


def _is_newer(written: TaskGroup, observed: TaskGroup) -> bool:
    """Return whether a written group is newer; versions of one resource are numbers that grow (KEP-5504)."""
    of_written, of_observed = written.metadata, observed.metadata
    versions = of_written.resource_version, of_observed.resource_version
    if of_written.uid != of_observed.uid or not all(map(str.isdecimal, versions)):
        return False
    return int(versions[0]) > int(versions[1])
