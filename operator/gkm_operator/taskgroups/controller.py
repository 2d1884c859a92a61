"""The controller of task groups: threads, queues and metrics around the reconcilers. Runs in the leader only."""

import time
from collections.abc import Callable
from typing import Any

from gkm.api.config import Config
from gkm.api.features import Feature, install
from gkm.api.meta import timestamp
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api, Key
from gkm.kube.controller import Controller
from gkm.kube.errors import ApiError
from gkm.kube.events import Recorder
from gkm.kube.informers import Informers
from gkm.kube.reflector import Reflector
from gkm.kube.resources import GROUPTEMPLATES, POOLS, TASKGROUPS, Resource
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm.kube.workqueue import WorkQueue
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.rendering.renderer import Renderer

from gkm_operator import metrics
from gkm_operator.taskgroups.kinds import KindWatches
from gkm_operator.taskgroups.members import GroupInventory, GroupMember, WatchedObject
from gkm_operator.taskgroups.observer import GroupObserver
from gkm_operator.taskgroups.planning import TemplatePlanner
from gkm_operator.taskgroups.pools import PoolReconciler
from gkm_operator.taskgroups.reconciler import GroupReconciler
from gkm_operator.taskgroups.sweep import LeakSweep
from gkm_operator.taskgroups.watcher import GroupWatcher
from gkm_operator.taskgroups.writer import GroupWriter

NAME = "taskgroups"
WORKERS = 8
PER_NAMESPACE = 4
"""Groups of one namespace that are handled at a time, so that a slow webhook or quota leaves workers to others."""
CALM_SECONDS = 0.1
"""Seconds between a change and the next pass, so that one pass covers several changes."""
KINDS_SECONDS = 5.0
"""Limit of seconds to wait for watches of remembered kinds; without them a new leader only sends more requests."""
REFUSED_SECONDS = 600.0
"""Seconds between two checks of the rights of the feature while it is off: most clusters never have them."""
BACKOFF = Backoff(0.5, 60.0)


class TaskGroupsBlocked(RuntimeError):
    """Group templates are switched on, but a kind is missing or must not be read."""


class TaskGroupsController(Controller):
    """The controller of TaskGroups. It rebuilds all state from lists.

    Without `taskGroups.enabled`, it only ends TaskGroups that are being deleted: their finalizer holds their namespaces
    too. `start_watch` starts the watch of a kind of objects.
    """

    def __init__(
        self,
        api: Api,
        config: Config,
        *,
        instance: str = "",
        informers: Informers | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        renderer: Renderer | None = None,
        backoff: Backoff = BACKOFF,
        clock: Clock = time.monotonic,
        now: Callable[[], str] = timestamp,
        start_watch: Callable[[Reflector[WatchedObject]], None] = Reflector.start,
    ) -> None:
        super().__init__(NAME)
        self._api = api
        self._settings = config.task_groups
        self._backoff = backoff
        self._renderer = renderer or RenderingProcess()
        self._inventory = GroupInventory()
        self.queue: WorkQueue[Key] = WorkQueue(
            NAME,
            self.reconcile,
            workers=WORKERS,
            backoff=backoff,
            group=lambda key: key[0],
            per_group=PER_NAMESPACE,
            observe=metrics.reconcile_recorder(NAME),
        )
        self.watcher = GroupWatcher(api, informers or Informers(api), self._group_changed)
        self.kinds = KindWatches(api, namespace, self._member_changed, start=start_watch, clock=clock)
        writer = GroupWriter(api, self.kinds)
        self.sweep = LeakSweep(api, self.watcher, self._inventory, writer)
        self.pools = PoolReconciler(api, self.watcher)
        planner = TemplatePlanner(
            api, self._settings, self._renderer, self.watcher.pools.get, self.watcher.templates.get
        )
        observer = GroupObserver(api, self.watcher, self._inventory, now=now, clock=clock)
        recorder = Recorder(api, "gkm.io/task-groups", instance or NAME)
        self._reconciler = GroupReconciler(self.watcher, observer, writer, planner, recorder)
        self.queues = [self.kinds.queue, self.queue, self.sweep.queue, self.pools.queue]

    def check(self) -> None:
        """Check that GroupTemplates, Pools and TaskGroups can be listed, if the feature is on.

        Raises:
            TaskGroupsBlocked: a kind is missing, or may not be listed.
            ApiError: the API server does not respond, or not now.
        """
        ours: tuple[Resource[Any], ...] = (GROUPTEMPLATES, POOLS, TASKGROUPS) if self._settings.enabled else ()
        for resource in ours:
            if (error := self._refusal(resource)) is not None:
                raise TaskGroupsBlocked(
                    f"the controllers cannot start, taskGroups.enabled is true and {resource.plural} "
                    f"cannot be listed ({error.message}): apply crds/, and {install(Feature.TASK_GROUPS)}; "
                    "or switch it off in gkm-config"
                ) from error

    def _refusal(self, resource: Resource[Any]) -> ApiError | None:
        """Return why a kind cannot be listed until an administrator acts; None if it can be listed."""
        try:
            next(iter(self._api.list_pages(resource, limit=1)))
        except ApiError as error:
            if error.forbidden or error.not_found:
                return error
            raise
        return None

    def _wait_for_rights(self) -> bool:
        """Wait until TaskGroups can be listed and return True; False if `stop` is called first.

        No restart of this process needs to follow when the feature is installed again.
        """
        while (found := self.attempt(lambda: self._refusal(TASKGROUPS) is None, self._backoff)) is False:
            if self._stop.wait(REFUSED_SECONDS):
                break
        return bool(found)

    def run(self) -> None:
        """Start the watches and wait for complete lists, then start the queues."""
        if self._settings.enabled:
            self.watches.start(*self.watcher.watches)
        elif self._wait_for_rights():
            self.watches.start(self.watcher.groups)
        else:
            return
        if self.attempt(self.kinds.load, self._backoff) is None:
            return
        self.kinds.queue.start()
        if self.wait(lambda: self.watches.synced):
            self.wait(lambda: self.kinds.synced, KINDS_SECONDS)
            self.start_queues()

    def close_watches(self, seconds: float) -> None:
        """End the watches within `seconds`, and the child process that renders templates."""
        self._renderer.close()
        self.kinds.close(seconds)
        super().close_watches(seconds)

    def reconcile(self, key: Key) -> float | None:
        """Create or delete the objects of a TaskGroup; return the seconds until the next pass, None if none is due.

        Raises:
            ApiError, Retry: a request failed.
        """
        group = self.watcher.group(key)
        if not self._settings.enabled and (group is None or group.metadata.deletion_timestamp is None):
            return None
        return self._reconciler.reconcile(key)

    def _group_changed(self, key: Key) -> None:
        group = self.watcher.groups.get(key[1], key[0])
        if group is None:
            self.queue.forget(key)
        else:
            self.queue.add(key, 0.0 if group.status.phase == "Pending" else CALM_SECONDS)
        self.sweep.suspect(key)

    def _member_changed(self, old: GroupMember | None, new: GroupMember | None) -> None:
        self._inventory.change(old, new)
        for group in {member.group for member in (old, new) if member is not None}:
            if self.watcher.groups.get(group[1], group[0]) is not None:
                self.queue.add(group, CALM_SECONDS)
            self.sweep.suspect(group)
