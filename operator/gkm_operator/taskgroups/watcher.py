"""The watches of pools, templates, task groups and their pods, and indexes for the controllers.

A TaskGroup of 1 MB takes up to 15 MB once it is decoded, and the controllers hold every one of them. Without its tasks,
manifests and labels it takes a few kB in any case. Must never be written back as it is: a pass that needs more reads
the whole group (reconciler), and a write sends only what differs (writer).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gkm.api.meta import API_VERSION, ObjectMeta, thin_metadata
from gkm.api.task_groups import (
    ENDED,
    FINALIZER,
    GROUP_LABEL,
    NVLINK_TEST_ANNOTATION,
    GroupObject,
    GroupTemplate,
    Pool,
    Task,
    TaskGroup,
    TaskGroupSpec,
    TaskGroupStatus,
)
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.index import Index
from gkm.kube.informers import Informers
from gkm.kube.reflector import OnChange, Reflector
from gkm.kube.resources import GROUPTEMPLATES, POOLS, TASKGROUPS, Resource
from msgspec import structs

from gkm_operator import metrics
from gkm_operator.pods import PODS, WatchedPod, is_task

MAX_FINALIZERS = 4
"""Limit of finalizers that are kept of a group."""
_MAX_FINALIZER = 128
"""Limit of characters of a finalizer."""
_MAX_THRESHOLD = 16


class _CountedTasks(list[Task]):
    """A list that is decoded to its length only."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __len__(self) -> int:
        return self._number


class WatchedGroup(TaskGroup, frozen=True, rename="camel", tag_field="kind", tag="TaskGroup"):
    """A TaskGroup as the watch holds it: with the number of its tasks, and the identity of its objects."""

    def __post_init__(self) -> None:
        """Reduce tasks and objects to what is needed."""
        structs.force_setattr(self, "metadata", _metadata(self.metadata))
        structs.force_setattr(self, "spec", _spec(self.spec))
        structs.force_setattr(self, "status", _status(self.status))

    @classmethod
    def of(cls, group: TaskGroup) -> "WatchedGroup":
        """Return a TaskGroup in the reduced form."""
        return cls(group.metadata, group.spec, group.status)


WATCHED_GROUPS = Resource(API_VERSION, TASKGROUPS.kind, TASKGROUPS.plural, namespaced=True, type=WatchedGroup)

_BY_ADMINISTRATORS = "only cluster administrators write it"


class WatchedPool(Pool, frozen=True, rename="camel", tag_field="kind", tag="Pool"):
    """A Pool as the watch holds it, without labels, annotations, owners and finalizers."""

    def __post_init__(self) -> None:
        """Drop the metadata that users can fill."""
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata))


class WatchedTemplate(GroupTemplate, frozen=True, rename="camel", tag_field="kind", tag="GroupTemplate"):
    """A GroupTemplate as the watch holds it, without labels, annotations, owners and finalizers."""

    def __post_init__(self) -> None:
        """Drop them."""
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata))


WATCHED_POOLS = replace(POOLS.of(WatchedPool), unbounded=_BY_ADMINISTRATORS)
WATCHED_TEMPLATES = replace(GROUPTEMPLATES.of(WatchedTemplate), unbounded=_BY_ADMINISTRATORS)


def _metadata(found: ObjectMeta) -> ObjectMeta:
    others = [each for each in found.finalizers if each != FINALIZER]
    ours = [FINALIZER] if FINALIZER in found.finalizers else []
    held = [each[:_MAX_FINALIZER] for each in (*ours, *others)][:MAX_FINALIZERS]
    return structs.replace(thin_metadata(found), finalizers=held)


def _spec(found: TaskGroupSpec) -> TaskGroupSpec:
    return TaskGroupSpec(found.pool, phase=found.phase, tasks=_CountedTasks(len(found.tasks)))


def _status(found: TaskGroupStatus) -> TaskGroupStatus:
    return structs.replace(found, objects=[_identified(each) for each in found.objects])


def _identified(found: GroupObject) -> GroupObject:
    threshold = value_at(found.manifest, "metadata", "annotations", NVLINK_TEST_ANNOTATION)
    if not isinstance(threshold, str):
        return structs.replace(found, manifest=None)
    annotations = {NVLINK_TEST_ANNOTATION: threshold[:_MAX_THRESHOLD]}
    return structs.replace(found, manifest={"metadata": {"annotations": annotations}})


def value_at(value: Any, *path: str) -> object:  # noqa: ANN401 -- JSON
    """Return the value of a manifest at a path; None if it has no value there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


_MAX_WRITTEN = 1024
"""Limit of groups whose last write is remembered until the watch shows it."""
_PHASES = ("Pending", "Running", "Ending", *sorted(ENDED))


class GroupWatcher:
    """Watches TaskGroups, Pools, GroupTemplates and task pods; `group_changed` gets the keys of groups to reconcile."""

    def __init__(self, api: Api, informers: Informers, group_changed: Callable[[Key], None]) -> None:
        self.pod_changed: list[OnChange[WatchedPod]] = []
        self._group_changed = group_changed
        self._written: LRUCache[Key, WatchedGroup | None] = LRUCache(_MAX_WRITTEN)
        self._phases: Counter[str] = Counter()
        self._pods: Index[Key, WatchedPod] = Index(lambda pod: (pod.metadata.group,), lambda pod: pod.metadata.uid)
        self._pools: Index[str, Pool] = Index(
            lambda pool: pool.spec.common_group_templates, lambda pool: pool.metadata.name
        )
        self.pools = Reflector(api, WATCHED_POOLS, self._pools.change)
        self.templates = Reflector(api, WATCHED_TEMPLATES)
        self.groups = Reflector(api, WATCHED_GROUPS, self._group)
        selector = ListSelector(labels=GROUP_LABEL)
        self.pods = informers.select(PODS, self._pod, wants=is_task, selector=selector)
        self.watches = (self.pools, self.templates, self.pods, self.groups)

    def group(self, key: Key) -> WatchedGroup | None:
        """Return a TaskGroup as last observed or written by this process; None if it does not exist."""
        observed, written = self.groups.get(key[1], key[0]), self._written.get(key)
        return written if observed and written and _is_newer(written, observed) else observed

    def wrote(self, group: TaskGroup) -> None:
        """Use a TaskGroup as the API server stored this process's write, until the watch shows it."""
        self._written.put((group.metadata.namespace, group.metadata.name), WatchedGroup.of(group))

    def forget(self, key: Key) -> None:
        """Use the TaskGroup that the watch shows again, because another writer was faster."""
        self._written.put(key, None)

    def living(self, key: Key) -> str:
        """Return the uid of a TaskGroup that exists and has not ended, as last observed; "" if absent."""
        group = self.groups.get(key[1], key[0])
        return group.metadata.uid if group is not None and group.status.phase not in ENDED else ""

    def pods_of(self, group: TaskGroup) -> list[WatchedPod]:
        """Return the task pods of a TaskGroup, without pods of an earlier group of the same name."""
        pods = self._pods.get((group.metadata.namespace, group.metadata.name))
        # Times in metadata are in whole seconds, in UTC, so that they are in the order of their text.
        return [pod for pod in pods if pod.metadata.creation_timestamp >= group.metadata.creation_timestamp]

    def pools_with(self, template: str) -> tuple[Pool, ...]:
        """Return the Pools that name a GroupTemplate."""
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
        for call in self.pod_changed:  # before the index, so that a pod that goes is always in at least one
            call(old, new)
        self._pods.change(old, new)
        for key in {pod.metadata.group for pod in (old, new) if pod is not None}:
            self._group_changed(key)


def _is_newer(written: TaskGroup, observed: TaskGroup) -> bool:
    """Return whether a written group is newer; versions of one resource are numbers that grow (KEP-5504)."""
    of_written, of_observed = written.metadata, observed.metadata
    versions = of_written.resource_version, of_observed.resource_version
    if of_written.uid != of_observed.uid or not all(map(str.isdecimal, versions)):
        return False
    return int(versions[0]) > int(versions[1])
