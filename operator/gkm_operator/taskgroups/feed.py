"""One watch of the objects of groups, which may end at any moment without leaving anything of it."""

from collections.abc import Callable
from threading import Lock
from typing import Any

from gkm.api.task_groups import GROUP_UID_LABEL
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.discovery import KindName
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Resource

from gkm_operator.taskgroups.members import GroupMember, WatchedObject, watched

OnMember = Callable[[GroupMember | None, GroupMember | None], None]
"""Called with (None, new), (old, new) or (old, None)."""
_SELECTOR = ListSelector(labels=GROUP_UID_LABEL)


class KindFeed:
    """The watch of one version of a kind, and the objects that it has shown.

    Its thread may still handle a page or an event when it is retired. What comes late is dropped: another watch may
    show these objects by then, or none does and nothing would ever remove them.
    """

    def __init__(self, api: Api, kind: KindName, resource: Resource[Any], on_change: OnMember) -> None:
        self.reflector = Reflector(api, watched(resource), self._changed, selector=_SELECTOR)
        self._kind = kind
        self._on_change = on_change
        self._shown: dict[Key, GroupMember] = {}
        self._retired = False
        self._lock = Lock()

    def retire(self) -> None:
        """Stop the watch without waiting for its thread, and take back its objects. They may exist: none is gone."""
        self.reflector.close(0.0)
        with self._lock:
            self._retired = True
            for member in self._shown.values():
                self._on_change(member.unwatched, None)
            self._shown.clear()

    def _changed(self, old: WatchedObject | None, new: WatchedObject | None) -> None:
        value = new or old
        if value is None:
            return
        key = value.metadata.namespace, value.metadata.name
        with self._lock:
            if self._retired:
                return
            before, after = self._shown.pop(key, None), None
            if new is not None:
                after = self._shown[key] = GroupMember.of(self._kind, new)
            self._on_change(before, after)
