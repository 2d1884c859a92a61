"""Keep a collection in memory: list it once, watch it, and call handlers with each change."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Lock, RLock, Thread
from typing import Any, Generic, ParamSpec, TypeVar

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import EVERYTHING, PAGE_LIMIT, Api, Change, Key, ListSelector, ObjectEntry, Watch, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.memory import bounded
from gkm.kube.resources import Resource

T = TypeVar("T")
P = ParamSpec("P")
_LOG = logging.getLogger(__name__)

_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner without an event is a failure: a broken proxy must not cause a busy loop."""

OnChange = Callable[[T | None, T | None], None]
"""Called with (None, new), (old, new) or (old, None), from the reflector's one thread, in order."""
OnRefused = Callable[[Resource[Any], ObjectEntry[Any], str], None]
"""Called with an object that is too large, and with the reason, which names the field."""


def no_report(_resource: Resource[Any], _entry: ObjectEntry[Any], _why: str) -> None:
    """Do not report a refused object: the log line is enough (the default of `on_refused`)."""


class Reflector(Generic[T]):
    """Lists and watches one collection of objects (after client-go's tools/cache/reflector.go).

    When a watch ends, the reflector resumes it. It lists again only after 410 Gone or a response that cannot be
    decoded, and then reports the deletions in between. While the server fails, it waits with a jittered backoff, or as
    long as the server requests. `on_change` should be quick, and put a key on a WorkQueue. The reflector logs an
    exception of it and does not repeat the event: a bad event must not be retried forever.

    An object that `retain` rejects is not stored, and looks deleted: a cluster has 100,000 pods, and a controller may
    need few of them. An object that cannot be decoded stays as it was last decoded, and `unreadable` names it. `synced`
    is set after `on_change` got the first complete list.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        on_change: OnChange[T] | None = None,
        *,
        selector: ListSelector = EVERYTHING,
        retain: Callable[[T], bool] = lambda _value: True,
        on_refused: OnRefused = no_report,
        backoff: Backoff = Backoff(),  # noqa: B008 -- a frozen value
    ) -> None:
        self.resource = resource
        self.synced = Event()
        self.unreadable: frozenset[Key] = frozenset()
        """The keys of objects that exist, and could not be decoded or held when last observed. Thread-safe.

        Read it before `values`: an object that becomes readable in between is then in at least one of the two.
        """
        self._api = api
        self._readers: list[OnChange[T]] = [] if on_change is None else [on_change]
        self._selector = selector
        self._asked = 0
        """The number of calls of `select`, and of them those that a complete list has followed."""
        self._answered = 0
        self._awaited: list[Event] = []
        self._retain = retain
        self._on_refused = on_refused
        self._backoff = backoff
        self._entries: dict[Key, ObjectEntry[T]] = {}
        self._version = ""
        self._failures = 0
        self._stopped = Event()
        self._watch: Watch[T] | None = None
        self._lock = Lock()
        self._delivery = RLock()
        """Held while an object is stored and its change delivered: a late reader gets every change exactly once."""
        self._thread: Thread | None = None

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object as last seen by the watch, None if absent. Thread-safe."""
        entry = self._entries.get((namespace, name))
        return entry.value if entry else None

    def values(self) -> list[T]:
        """Return all objects as last seen by the watch. Thread-safe."""
        return [entry.value for entry in list(self._entries.values())]

    def subscribe(self, on_change: OnChange[T]) -> None:
        """Add a handler for changes, from any thread; it first gets the existing objects as (None, object)."""
        with self._delivery:
            for entry in self._entries.values():
                self._call(on_change, None, entry.value)
            self._readers.append(on_change)

    def select(self, selector: ListSelector, listed: Event) -> None:
        """List again with this selector and use it from then on; `listed` is set after that list.

        Any thread may call it, before `start` or after it.
        """
        with self._lock:
            self._selector = selector
            self._asked += 1
            self._awaited.append(listed)
            if self._watch:
                self._watch.close()

    def start(self) -> None:
        """Start the thread that lists and watches.

        A second call has no effect, because several readers may share the reflector.
        """
        with self._lock:
            if self._thread is not None:
                return
            self._thread = Thread(target=self.run, name=f"watch {self.resource.plural}", daemon=True)
            self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """End `run` from any thread, and wait at most `seconds` for its thread to end."""
        self._stopped.set()
        with self._lock:
            if self._watch:
                self._watch.close()
        if self._thread:
            self._thread.join(seconds)

    def run(self) -> None:
        """List and watch until `close`; never raises."""
        while not self._stopped.is_set():
            retry_after = 0.0
            try:
                if self._list_and_watch():
                    continue
                self._failures += 1
            except ApiError as error:
                # The server would repeat a response that cannot be decoded: only a list gets past it.
                if error.expired or error.unreadable:
                    self._version = ""
                self._failures += 1
                self._log_error(error)
                retry_after = error.retry_after
            except Exception:  # noqa: BLE001 -- the thread must survive
                # No caller could handle it, and a thread that ends silently would leave the cache stale.
                self._failures += 1
                _LOG.exception("watch failed, starts again", extra=fields(resource=self.resource.plural))
            self._stopped.wait(self._backoff.pause(self._failures, retry_after))

    def _list_and_watch(self) -> bool:
        """List if necessary, then watch until the watch ends; return whether the watch made progress."""
        if not self._version or self._is_outdated:
            self._list()
        if self._stopped.is_set() or self._is_outdated:
            return self._is_outdated
        watch = self._api.watch(self.resource, self._version, self._selector)
        started = time.monotonic()
        with self._lock:
            self._watch = watch
            if self._stopped.is_set() or self._is_outdated:
                watch.close()
        progressed = False
        try:
            for event in watch:
                self._apply(event)
                progressed = True
        finally:
            watch.close()
            with self._lock:
                self._watch = None
            progressed = progressed or self._is_outdated or time.monotonic() - started >= _SHORT_WATCH_SECONDS
            if progressed:
                # Also after a broken watch: a network that cuts connections every few minutes is no failing server.
                self._failures = 0
        return progressed

    @property
    def _is_outdated(self) -> bool:
        """Return whether `select` was called after the list began that was complete last."""
        return self._answered != self._asked

    def _list(self) -> None:
        """List everything; return early if this ends, or another selector counts by then."""
        seen: set[Key] = set()
        unreadable: set[Key] = set()
        version = ""
        with self._lock:
            selector, asked = self._selector, self._asked
        for page in self._api.list_pages(self.resource, selector, self.resource.page_limit or PAGE_LIMIT):
            version = page.resource_version
            for entry in page.entries:
                seen.add(entry.key)
                if not self._upsert(entry):
                    unreadable.add(entry.key)
            unreadable.update(page.unreadable)
            if self._stopped.is_set() or asked != self._asked:
                return
        self.unreadable = frozenset(unreadable)
        for key in self._entries.keys() - seen - unreadable:
            self._delete(key)
        self._version = version
        with self._lock:
            if asked != self._asked:
                return
            self._answered, awaited, self._awaited = asked, self._awaited, []
        for listed in (self.synced, *awaited):
            listed.set()

    def _apply(self, event: WatchEvent[T]) -> None:
        key = event.entry.key if event.entry else event.unreadable
        if key is not None and event.change is Change.DELETED:
            self._delete(key)
        elif key is not None and (event.entry is None or not self._upsert(event.entry)):
            self.unreadable |= {key}
        self._version = event.resource_version

    def _upsert(self, entry: ObjectEntry[T]) -> bool:
        """Store an object, or forget one that is not retained; return False for an object above the size limit."""
        if not self._retain(entry.value):
            self._delete(entry.key)
            return True
        held = self._held(entry)
        if held is None:
            return False
        with self._delivery:
            old = self._entries.get(entry.key)
            self._entries[entry.key] = held
            self.unreadable -= {entry.key}
            if old is None or old.resource_version != held.resource_version:
                self._notify(old.value if old else None, held.value)
        return True

    def _held(self, entry: ObjectEntry[T]) -> ObjectEntry[T] | None:
        """Return an object as it may be held; None for an object above the size limit."""
        if self.resource.unbounded:
            return entry
        try:
            value: T = bounded(entry.value)
        except ValueError as error:
            self._refuse(entry, str(error))
            return None
        return entry if value is entry.value else replace(entry, value=value)

    def _refuse(self, entry: ObjectEntry[T], why: str) -> None:
        name = "/".join(filter(None, entry.key))
        _LOG.warning(
            "watched object exceeds the limits of GKM, not used",
            extra=fields(object=f"{self.resource.kind} {name}", why=why),
        )
        self._call(self._on_refused, self.resource, entry, why)

    def _delete(self, key: Key) -> None:
        with self._delivery:
            old = self._entries.pop(key, None)
            self.unreadable -= {key}
            if old is not None:
                self._notify(old.value, None)

    def _notify(self, old: T | None, new: T | None) -> None:
        for reader in self._readers:
            self._call(reader, old, new)

    def _call(self, handler: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        try:
            handler(*arguments, **named)
        except Exception:  # noqa: BLE001 -- a handler must not end the watch
            _LOG.exception("watch handler failed, event dropped", extra=fields(resource=self.resource.plural))

    def _log_error(self, error: ApiError) -> None:
        if self._stopped.is_set():
            return
        level = logging.INFO if error.expired or self._failures == 1 else logging.WARNING
        log_fields = fields(resource=self.resource.plural, failures=self._failures, why=str(error))
        _LOG.log(level, "watch interrupted", extra=log_fields)
