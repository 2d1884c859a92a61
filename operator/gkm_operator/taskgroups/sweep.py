"""Delete leaks: objects that belong to a group which has ended or does not exist, by label and ownerReference.

A watch may lag, so the group is read from the API server before its objects are deleted. A label alone never is a
reason: users who may label an object, but not delete it, could use our right to delete.
"""

import logging
import random
from functools import partial

from gkm.api.task_groups import ENDED
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Key
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.actions import run_each
from gkm_operator.taskgroups.members import GroupInventory, GroupMember
from gkm_operator.taskgroups.watcher import WATCHED_GROUPS, GroupWatcher
from gkm_operator.taskgroups.writer import GroupWriter

_LOG = logging.getLogger(__name__)

QUEUE = "task-group-leaks"
PATIENCE_SECONDS = 2.0
"""Seconds before a suspected leak is checked: the garbage collector deletes most, and watches may lag."""
MAX_DELETIONS = 25
"""Limit of deletions in one pass; then other groups take their turn."""
REST_SECONDS = 1.0
"""Seconds until the next pass for the remaining deletions."""


class LeakSweep:
    """Deletes objects of TaskGroups that have ended or do not exist any more."""

    def __init__(self, api: Api, watcher: GroupWatcher, inventory: GroupInventory, writer: GroupWriter) -> None:
        self._api = api
        self._watcher = watcher
        self._inventory = inventory
        self._writer = writer
        self.queue: WorkQueue[Key] = WorkQueue(
            QUEUE,
            self.sweep,
            workers=1,
            backoff=Backoff(1.0, 60.0),
            group=lambda key: key[0],
            observe=metrics.reconcile_recorder(QUEUE),
        )

    def suspect(self, group: Key) -> None:
        """Schedule a check of the objects of TaskGroups with this name, if any of them may be a leak."""
        if self._inventory.has_others(group, self._watcher.living(group)):
            self.queue.add(group, PATIENCE_SECONDS)

    def sweep(self, group: Key) -> float | None:
        """Delete leaked objects of TaskGroups with this name; return the seconds until the next pass, or None.

        Raises:
            ApiError, Retry: the group was not read, or an object not deleted; others were, unless the API server is
                away or overloaded.
        """
        found = self._inventory.others(group, self._watcher.living(group))
        if not found:
            return None
        living = self._read(group)
        leaks = [member for member in found if member.group_uid != living]
        # By chance, so that leaks that cannot be deleted do not keep others from their turn.
        chosen = random.sample(leaks, min(len(leaks), MAX_DELETIONS))
        run_each(partial(self._delete, member) for member in chosen)
        return REST_SECONDS if len(leaks) > MAX_DELETIONS else None

    def _delete(self, member: GroupMember) -> None:
        namespace, name = member.metadata.namespace, member.metadata.name
        about = fields(object=f"{member.kind} {namespace}/{name}", group=member.group[1])
        _LOG.warning("object of an ended task group found, to be deleted", extra=about)
        self._writer.delete(namespace, member.kind, name, member.metadata.uid, "leaked")

    def _read(self, group: Key) -> str:
        """Return the uid of the group of a name that lives, from the API server; "" if absent."""
        found = self._api.find(WATCHED_GROUPS, group[1], group[0])
        return "" if found is None or found.status.phase in ENDED else found.metadata.uid
