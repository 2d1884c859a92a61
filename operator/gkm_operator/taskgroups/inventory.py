"""The objects of groups as the watches show them, and those that the watches saw go.

Absence proves nothing: a watch may not have shown a new object yet. So an object is gone only if it was seen while it
was being deleted, and then seen to go. One that left the watch otherwise may only have lost its label.
"""

from dataclasses import dataclass
from enum import Enum, auto

from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Key
from gkm.kube.discovery import KindName
from gkm.kube.index import Index

from gkm_operator.taskgroups.members import GroupMember

_MAX_GONE = 16_384
"""Objects that are remembered as gone until the status has it; each beyond it costs a DELETE that finds nothing."""
_ANY = ""
"""In place of the uid of a group: of all groups of that name."""


@dataclass(frozen=True, slots=True)
class Living:
    """An object of a group exists."""

    uid: str
    terminating: bool = False
    finalizers: tuple[str, ...] = ()


class Sight(Enum):
    """What else is known of an object of a group."""

    UNSEEN = auto()
    GONE = auto()
    FOREIGN = auto()
    """Its name belongs to another object."""


Seen = Living | Sight


class GroupInventory:
    """Fed by the watches of all kinds. Thread-safe.

    A change, and the question about one object, take the same time however many objects a group has: users decide how
    many objects get its labels.
    """

    def __init__(self) -> None:
        self._objects: Index[tuple[str, KindName, str], GroupMember] = Index(
            lambda member: ((member.metadata.namespace, member.kind, member.metadata.name),), _identity
        )
        self._members: Index[tuple[Key, str], GroupMember] = Index(_keys, _identity)
        self._gone: LRUCache[str, str] = LRUCache(_MAX_GONE)

    def change(self, old: GroupMember | None, new: GroupMember | None) -> None:
        """Apply a change of an object."""
        for index in (self._objects, self._members):
            index.change(old, new)
        if new is None and old is not None and old.terminating:
            self._gone.put(old.metadata.uid, old.group_uid)

    def members(self, group: Key, uid: str) -> list[GroupMember]:
        """Return the objects that a group owns and whose label has its uid."""
        return list(self._members.get((group, uid)))

    def has_others(self, group: Key, uid: str) -> bool:
        """Return whether any object is owned by a group of this name with another uid."""
        return self._members.count((group, _ANY)) > (self._members.count((group, uid)) if uid else 0)

    def others(self, group: Key, uid: str) -> list[GroupMember]:
        """Return the objects that groups of this name with other uids own, but those that are being deleted."""
        found = self._members.get((group, _ANY))
        return [member for member in found if member.group_uid != uid and not member.terminating]

    def sight(self, group: Key, group_uid: str, kind: KindName, name: str, uid: str) -> Seen:
        """Return what is known of an object; its own `uid` is "" before a response has it."""
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
