"""Deletes leaks: objects with label and ownerReference of a group that does not exist any more, or that has ended.

A watch may lag, so the group is read from the API server before its objects are deleted. A label alone never is a
reason: users who may label an object, but not delete it, could use our right to delete.
"""

import logging
import random

from gkm.api.task_groups import ENDED
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api, Key
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import WorkQueue

from gkm_operator import metrics
from gkm_operator.taskgroups.members import GroupInventory
from gkm_operator.taskgroups.watcher import WATCHED_GROUPS, GroupWatcher
from gkm_operator.taskgroups.writer import GroupWriter

_LOG = logging.getLogger(__name__)

QUEUE = "task-group-leaks"
PATIENCE_SECONDS = 2.0
"""The delay of a look, because the garbage collector deletes most leaks, and watches of two kinds may lag."""
MAX_DELETIONS = 25
"""DELETEs of one pass; then it is the turn of other groups."""
REST_SECONDS = 1.0
"""The pause before the rest: the watches show the effects of these meanwhile."""


class LeakSweep:
    """Handles the keys of groups whose objects may be leaks."""

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
        """Schedule a look at the objects of groups of a name, if any of them may be a leak."""
        if self._inventory.has_others(group, self._watcher.living(group)):
            self.queue.add(group, PATIENCE_SECONDS)

    def sweep(self, group: Key) -> float | None:
        """Delete leaks of groups of a name; return the seconds until the rest may be deleted, None without a rest.

        Raises:
            ApiError, Retry: the group was not read, or an object not deleted; others were, unless the API server is
                away or overloaded.
        """
        found = self._inventory.others(group, self._watcher.living(group))
        if not found:
            return None
        living = self._read(group)
        leaks = [member for member in found if member.group_uid != living]
        failure: ApiError | None = None
        # By chance, so that leaks that cannot be deleted do not keep others from their turn.
        for member in random.sample(leaks, min(len(leaks), MAX_DELETIONS)):
            namespace, name = member.metadata.namespace, member.metadata.name
            _LOG.warning("leak found", extra=fields(object=f"{member.kind} {namespace}/{name}", group=group[1]))
            try:
                self._writer.delete(namespace, member.kind, name, member.metadata.uid, "leaked")
            except ApiError as error:
                if error.unavailable:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure
        return REST_SECONDS if len(leaks) > MAX_DELETIONS else None

    def _read(self, group: Key) -> str:
        """Return the uid of the group of a name that lives, from the API server; "" if absent."""
        found = self._api.find(WATCHED_GROUPS, group[1], group[0])
        return "" if found is None or found.status.phase in ENDED else found.metadata.uid
