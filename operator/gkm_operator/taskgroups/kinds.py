"""The kinds of objects that groups have ever had: they are recorded in a ConfigMap and watched.

A kind is never forgotten, so that leaks of kinds are found that no template names any more. A kind that the API server
does not serve has no objects. Its watch may end at any moment without leaving anything of it.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from gkm.api.task_group_rights import NAME
from gkm.api.task_groups import GROUP_UID_LABEL
from gkm.hoststate.escaping import escape
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.api import Api, Key, ListSelector
from gkm.kube.controller import end
from gkm.kube.discovery import REMEMBERED_SECONDS, Discovery, KindName, Served
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CONFIGMAPS, Resource
from gkm.kube.workqueue import Retry, WorkQueue

from gkm_operator import metrics
from gkm_operator.taskgroups.members import GroupMember, WatchedObject, watched

_LOG = logging.getLogger(__name__)


OnMember = Callable[[GroupMember | None, GroupMember | None], None]
"""Called with a change of an object: (None, new), (old, new) or (old, None)."""
_SELECTOR = ListSelector(labels=GROUP_UID_LABEL)


class KindFeed:
    """The watch of one version of a kind of TaskGroups' objects, and the objects that it has shown.

    Its thread may still handle a page or an event when it is retired. Late changes are dropped: another watch may show
    these objects by then, or no watch does and they would never be removed.
    """

    def __init__(self, api: Api, kind: KindName, resource: Resource[Any], on_change: OnMember) -> None:
        self.reflector = Reflector(api, watched(resource), self._changed, selector=_SELECTOR)
        self._kind = kind
        self._on_change = on_change
        self._shown: dict[Key, GroupMember] = {}
        self._retired = False
        self._lock = Lock()

    def retire(self) -> None:
        """Stop the watch without waiting, and remove its objects from the index; they may still exist."""
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


QUEUE = "task-group-kinds"
MAX_KINDS = 128
"""Limit of kinds: twice as many as a configuration can allow. Each needs a watch."""
RECHECK_SECONDS = REMEMBERED_SECONDS
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([a-z0-9.-]{0,180}[a-z0-9])?)?", re.ASCII)


class TooManyKinds(Retry):
    """The ConfigMap of kinds already records MAX_KINDS kinds of objects."""


class KindWatches:
    """Watches all recorded kinds of TaskGroups' objects that are served; `on_change` gets all changes. Thread-safe."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        on_change: OnMember,
        *,
        start: Callable[[Reflector[WatchedObject]], None] = Reflector.start,
        clock: Clock = time.monotonic,
    ) -> None:
        self._api = api
        self._discovery = Discovery(api, clock)
        self._namespace = namespace
        self._on_change = on_change
        self._start = start
        self._remembered: set[KindName] = set()
        self._waiting: set[KindName] = set()
        self._feeds: dict[KindName, KindFeed] = {}
        self._lock = Lock()
        self.queue: WorkQueue[KindName] = WorkQueue(
            QUEUE, self.follow, workers=1, backoff=Backoff(1.0, 60.0), observe=metrics.reconcile_recorder(QUEUE)
        )

    @property
    def reflectors(self) -> list[Reflector[WatchedObject]]:
        """Return the running watches of kinds that TaskGroups have created."""
        return [feed.reflector for feed in list(self._feeds.values())]

    @property
    def synced(self) -> bool:
        """Return whether the watches of all recorded kinds have complete lists."""
        return not self._waiting and all(reflector.synced.is_set() for reflector in self.reflectors)

    def load(self) -> int:
        """Read the kinds recorded in the ConfigMap and schedule their watches; return their number.

        Raises:
            ApiError: the ConfigMap cannot be read.
        """
        found = self._api.find(CONFIGMAPS, NAME, self._namespace) or {}
        for text in _valid(found.get("data") or {}):
            kind, _, group = text.partition(".")
            self._remembered.add(KindName(group, kind))
            self._waiting.add(KindName(group, kind))
            self.queue.add(KindName(group, kind))
        return len(self._remembered)

    def remember(self, kind: KindName) -> None:
        """Record a kind in the ConfigMap and watch it; call this before the first object of the kind is created.

        Raises:
            TooManyKinds: MAX_KINDS other kinds are recorded.
            ApiError: the ConfigMap could not be written.
        """
        if kind not in self._remembered:
            if len(self._remembered) >= MAX_KINDS:
                raise TooManyKinds(f"the ConfigMap {NAME} remembers {MAX_KINDS} kinds; remove those that no group uses")
            self._write(str(kind))
            self._remembered.add(kind)
        if kind not in self._feeds:
            self.queue.add(kind, self.follow(kind))

    def served(self, kind: KindName) -> Served:
        """Return the namespaced resources of a kind, empty if the API server does not serve the kind.

        Raises:
            ApiError: the API server does not answer.
        """
        return tuple(resource for resource in self._discovery.served(kind) if resource.namespaced)

    def missing(self, kind: KindName) -> None:
        """Ask the API server again for a kind, because a request for it got 404."""
        self._discovery.forget(kind)
        self.queue.add(kind)

    def follow(self, kind: KindName) -> float:
        """Watch a kind if it is served, and only then; return the seconds until the next check.

        Raises:
            ApiError: the API server does not answer.
        """
        served = self.served(kind)
        with self._lock:
            running = self._feeds.get(kind)
            versions = [resource.api_version for resource in served]
            if running is not None and running.reflector.resource.api_version not in versions:
                self._stop(kind, running)
            if served and kind not in self._feeds:
                feed = KindFeed(self._api, kind, served[0], self._on_change)
                self._feeds[kind] = feed
                self._start(feed.reflector)
            self._waiting.discard(kind)
        return RECHECK_SECONDS

    def close(self, seconds: float) -> None:
        """End all watches; wait at most `seconds` in total."""
        end(self.reflectors, seconds)

    def _stop(self, kind: KindName, feed: KindFeed) -> None:
        """Stop the watch of a kind or version that is not served any more; its objects are not observed any more."""
        version = feed.reflector.resource.api_version
        _LOG.warning(
            "API server no longer serves this version of a kind that task groups create, watch ended",
            extra=fields(kind=str(kind), version=version),
        )
        del self._feeds[kind]
        feed.retire()

    def _write(self, key: str) -> None:
        """Add a key to the ConfigMap. A merge patch leaves those alone that another leader adds."""
        patch = {"data": {key: ""}}
        try:
            self._api.merge(CONFIGMAPS, NAME, patch, self._namespace)
        except ApiError as error:
            if not error.not_found:
                raise
            # Created by an apply, whose request has the name: the right to create is for this ConfigMap only.
            metadata = {"name": NAME, "namespace": self._namespace}
            empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            self._api.apply(CONFIGMAPS, empty, field_manager=NAME)
            self._api.merge(CONFIGMAPS, NAME, patch, self._namespace)


def _valid(data: dict[str, Any]) -> Iterable[str]:
    valid = [text for text in sorted(data) if _NAME.fullmatch(text)]
    for text in sorted(data.keys() - set(valid))[:MAX_KINDS]:
        _LOG.warning("invalid name of a kind skipped", extra=fields(configmap=NAME, key=escape(text)))
    if len(valid) > MAX_KINDS:
        _LOG.error(
            "too many kinds in task groups, not all watched",
            extra=fields(configmap=NAME, kinds=len(valid), watched=MAX_KINDS),
        )
    return valid[:MAX_KINDS]
