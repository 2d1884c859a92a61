"""The objects of groups as watches show them, and the objects that they saw being deleted.

Only their metadata is read, and little more. Absence is no proof: a watch may not have shown a new object yet. So an
object is gone only if it was seen while it was being deleted, and then seen to go. An object that left the watch
otherwise may only have lost its label.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from gkm.api.meta import GROUP, TRUE, OwnerReference
from gkm.api.mnnvl_metadata import MNNVL_READY
from gkm.api.task_groups import GROUP_LABEL, GROUP_UID_LABEL
from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Key
from gkm.kube.discovery import KindName
from gkm.kube.index import Index
from gkm.kube.resources import TASKGROUPS, Resource
from msgspec import Struct, structs

JOB = KindName("batch", "Job")

_LABELS = (GROUP_LABEL, GROUP_UID_LABEL)
_MAX_READINESS = 1024
_MAX_FINALIZERS, _MAX_FINALIZER = 3, 128
"""Finalizers, and characters of one, that messages show."""
_MAX_OWNERS, _MAX_TEXT = 3, 63
"""The API server does not bound the owner references of an object or their texts; one is from our group."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
"""A valid name of a TaskGroup: the API server does not check names in owner references, and it becomes part of a
path."""


class MemberMetadata(Struct, frozen=True, rename="camel"):
    """Metadata of a TaskGroup's object with only the labels, annotations and owners that are needed, to save memory."""

    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "labels", _only(_LABELS, self.labels))
        readiness = _only((MNNVL_READY,), self.annotations) or {}
        is_short = len(readiness.get(MNNVL_READY, "")) <= _MAX_READINESS
        structs.force_setattr(self, "annotations", readiness if readiness and is_short else None)
        finalizers = tuple(one[:_MAX_FINALIZER] for one in (self.finalizers or ())[:_MAX_FINALIZERS])
        structs.force_setattr(self, "finalizers", finalizers or None)
        owners = [each for each in self.owner_references or () if _is_group(each)][:_MAX_OWNERS]
        structs.force_setattr(self, "owner_references", tuple(owners) or None)

    @property
    def group(self) -> Key:
        """Return namespace and name of the TaskGroup in the object's label."""
        return self.namespace, (self.labels or {}).get(GROUP_LABEL, "")


class WatchedObject(Struct, frozen=True):
    """Any object of a TaskGroup as a watch holds it: its metadata."""

    metadata: MemberMetadata


class _JobCondition(Struct, frozen=True):
    type: str
    status: str


class _JobStatus(Struct, frozen=True):
    conditions: tuple[_JobCondition, ...] | None = None


class WatchedJob(WatchedObject, frozen=True):
    """A Job of a TaskGroup as a watch holds it: its metadata and status."""

    status: _JobStatus = _JobStatus()


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An object with the labels of a TaskGroup, as last observed; `job` is how a Job ended, "" if it has not."""

    kind: KindName
    metadata: MemberMetadata
    job: str = ""
    """For a Job: Complete or Failed once it has ended, else ""."""

    @classmethod
    def of(cls, kind: KindName, value: WatchedObject) -> "GroupMember":
        """Return a watched object as a member of its TaskGroup."""
        conditions = value.status.conditions or () if isinstance(value, WatchedJob) else ()
        ended = (one.type for one in conditions if one.status == TRUE and one.type in {"Complete", "Failed"})
        return cls(kind, value.metadata, next(ended, ""))

    @property
    def group_uid(self) -> str:
        """Return the uid of the TaskGroup in the object's label."""
        return (self.metadata.labels or {}).get(GROUP_UID_LABEL, "")

    @property
    def owner(self) -> Key | None:
        """Return namespace and name of the TaskGroup that owns the object, None if none does."""
        owner = owner_of(self.metadata, self.group_uid)
        return (self.metadata.namespace, owner.name) if owner is not None else None

    @property
    def group(self) -> Key:
        """Return namespace and name of the TaskGroup that the object belongs to: its owner, else the label."""
        return self.owner or self.metadata.group

    @property
    def terminating(self) -> bool:
        """Return whether the object is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def unwatched(self) -> "GroupMember":
        """Return a copy without the deletion timestamp, because the object's watch has ended."""
        return replace(self, metadata=structs.replace(self.metadata, deletion_timestamp=None))

    def __str__(self) -> str:
        return f"{self.kind} {self.metadata.name}"


def owned_by(metadata: MemberMetadata, uid: str) -> bool:
    """Return whether the TaskGroup with this uid owns the object, so that GKM may delete it.

    That proves that the object is ours to delete; a label does not. A user who may change the references could delete
    it anyway: the garbage collector deletes what refers to no existing owner, and with the admission plugin
    OwnerReferencesPermissionEnforcement only users who may delete an object can change its references.
    """
    return owner_of(metadata, uid) is not None


def owner_of(metadata: MemberMetadata, uid: str) -> OwnerReference | None:
    """Return the ownerReference of an object to the TaskGroup with this uid, None if absent."""
    return next((owner for owner in metadata.owner_references or () if uid and owner.uid == uid), None)


def watched(resource: Resource[Any]) -> Resource[WatchedObject]:
    """Return the resource for watching objects of a kind: with the status of a Job, otherwise metadata only."""
    of_job = KindName.of(resource.api_version, resource.kind) == JOB
    return Resource(
        resource.api_version,
        resource.kind,
        resource.plural,
        namespaced=resource.namespaced,
        type=WatchedJob if of_job else WatchedObject,
        metadata_only=not of_job,
    )


def _is_group(owner: OwnerReference) -> bool:
    ours = owner.kind == TASKGROUPS.kind and owner.api_version.partition("/")[0] == GROUP
    return (
        ours and _NAME.fullmatch(owner.name) is not None and max(map(len, (owner.api_version, owner.uid))) <= _MAX_TEXT
    )


def _only(keys: tuple[str, ...], found: Mapping[str, str] | None) -> dict[str, str] | None:
    return {key: found[key] for key in keys if key in found} or None if found else None


_MAX_GONE = 16_384
"""Limit of deleted objects that are remembered until the status records them."""
_ANY = ""
"""Stands for any uid of a group with a name."""


@dataclass(frozen=True, slots=True)
class Living:
    """The object of a TaskGroup exists."""

    uid: str
    terminating: bool = False
    finalizers: tuple[str, ...] = ()


class Sight(Enum):
    """The state of a TaskGroup's object that is not known to exist: not seen yet, gone, or not the group's own."""

    UNSEEN = auto()
    GONE = auto()
    FOREIGN = auto()
    """Another object has its name."""


Seen = Living | Sight


class GroupInventory:
    """Indexes the objects of TaskGroups, from the watches of all kinds. Thread-safe.

    A change, and the question about one object, take the same time for any number of objects in a group: users decide
    how many objects get its labels.
    """

    def __init__(self) -> None:
        self._objects: Index[tuple[str, KindName, str], GroupMember] = Index(
            lambda member: ((member.metadata.namespace, member.kind, member.metadata.name),), _identity
        )
        self._members: Index[tuple[Key, str], GroupMember] = Index(_keys, _identity)
        self._gone: LRUCache[str, str] = LRUCache(_MAX_GONE)

    def change(self, old: GroupMember | None, new: GroupMember | None) -> None:
        """Update the index after a change of an object; remember a deleted object's uid."""
        for index in (self._objects, self._members):
            index.change(old, new)
        if new is None and old is not None and old.terminating:
            self._gone.put(old.metadata.uid, old.group_uid)

    def members(self, group: Key, uid: str) -> list[GroupMember]:
        """Return the objects that a TaskGroup owns and that have its uid in their label."""
        return list(self._members.get((group, uid)))

    def has_others(self, group: Key, uid: str) -> bool:
        """Return whether an object belongs to a TaskGroup of the same name with another uid."""
        return self._members.count((group, _ANY)) > (self._members.count((group, uid)) if uid else 0)

    def others(self, group: Key, uid: str) -> list[GroupMember]:
        """Return the objects of TaskGroups of the same name with other uids that are not being deleted."""
        found = self._members.get((group, _ANY))
        return [member for member in found if member.group_uid != uid and not member.terminating]

    def sight(self, group: Key, group_uid: str, kind: KindName, name: str, uid: str) -> Seen:
        """Return what is known about an object of a TaskGroup; `uid` is "" before its creation was confirmed."""
        for member in self._objects.get((group[0], kind, name)):
            ours = member.owner == group if not uid else member.metadata.uid == uid
            if ours and member.group_uid == group_uid:
                return Living(member.metadata.uid, member.terminating, member.metadata.finalizers or ())
        return Sight.GONE if uid and self._gone.get(uid) == group_uid else Sight.UNSEEN


def _identity(member: GroupMember) -> tuple[KindName, str]:
    return member.kind, member.metadata.uid


def _keys(member: GroupMember) -> tuple[tuple[Key, str], ...]:
    group = member.owner
    return () if group is None else ((group, member.group_uid), (group, _ANY))
