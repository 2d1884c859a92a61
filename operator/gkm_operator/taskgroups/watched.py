"""TaskGroups as they are watched and remembered: what a pass decides by, and little more. Pure.

A TaskGroup of 1 MB takes up to 15 MB once it is decoded, and the controllers hold every one of them. Without its tasks,
manifests and labels it takes a few kB, whatever its users wrote. Must never be written back as it is: a pass that needs
more reads the whole group (reconciler), and a write sends only what differs (writer).
"""

from dataclasses import replace
from typing import Any

from gkm.api.meta import API_VERSION, ObjectMeta, thin_metadata
from gkm.api.task_groups import (
    FINALIZER,
    NVLINK_TEST_ANNOTATION,
    GroupObject,
    GroupTemplate,
    Pool,
    Task,
    TaskGroup,
    TaskGroupSpec,
    TaskGroupStatus,
)
from gkm.kube.resources import GROUPTEMPLATES, POOLS, TASKGROUPS, Resource
from msgspec import structs

MAX_FINALIZERS = 4
"""That are held; of a group with so many, some may be missing."""
_MAX_FINALIZER = 128
"""Characters of one."""
_MAX_THRESHOLD = 16


class _CountedTasks(list[Task]):
    """A list of which only the length is held."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def __len__(self) -> int:
        return self._number


class WatchedGroup(TaskGroup, frozen=True, rename="camel", tag_field="kind", tag="TaskGroup"):
    """A TaskGroup that holds the number of its tasks, and of its objects their identity and the threshold of a test."""

    def __post_init__(self) -> None:
        """Drop the rest."""
        structs.force_setattr(self, "metadata", _metadata(self.metadata))
        structs.force_setattr(self, "spec", _spec(self.spec))
        structs.force_setattr(self, "status", _status(self.status))

    @classmethod
    def of(cls, group: TaskGroup) -> "WatchedGroup":
        """Return a group with only the fields that the index holds."""
        return cls(group.metadata, group.spec, group.status)


WATCHED_GROUPS = Resource(API_VERSION, TASKGROUPS.kind, TASKGROUPS.plural, namespaced=True, type=WatchedGroup)

_BY_ADMINISTRATORS = "only cluster administrators write it"


class WatchedPool(Pool, frozen=True, rename="camel", tag_field="kind", tag="Pool"):
    """A Pool without labels, annotations, owners and finalizers."""

    def __post_init__(self) -> None:
        """Drop them."""
        structs.force_setattr(self, "metadata", thin_metadata(self.metadata))


class WatchedTemplate(GroupTemplate, frozen=True, rename="camel", tag_field="kind", tag="GroupTemplate"):
    """A GroupTemplate without labels, annotations, owners and finalizers."""

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
    threshold = _at(found.manifest, "metadata", "annotations", NVLINK_TEST_ANNOTATION)
    if not isinstance(threshold, str):
        return structs.replace(found, manifest=None)
    annotations = {NVLINK_TEST_ANNOTATION: threshold[:_MAX_THRESHOLD]}
    return structs.replace(found, manifest={"metadata": {"annotations": annotations}})


def _at(value: Any, *path: str) -> object:  # noqa: ANN401 -- JSON
    """Return what a manifest has at a path; None if it has nothing there."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
