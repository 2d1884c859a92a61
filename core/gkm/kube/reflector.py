"""A collection kept in memory: listed once, then watched, and every difference handed on with the old and the new."""

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import EVERYTHING, Api, Change, Key, ListSelector, ObjectEntry, Watch, WatchEvent
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource

T = TypeVar("T")
_LOG = logging.getLogger(__name__)

_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner and brought nothing counts as a failure, or a broken proxy would keep us spinning."""

OnChange = Callable[[T | None, T | None], None]
"""Called with (None, new), (old, new) or (old, None), from the reflector's one thread, in order."""


class Reflector(Generic[T]):
    """List and watch of one collection (after client-go's tools/cache/reflector.go).

    It resumes where it was when a watch ends, lists again only after 410 Gone or an answer that is none (then the
    deletes that it missed are handed on too), and waits with growing, jittered pauses while the server is away, or as
    long as the server asks. `on_change` should be quick:
    put a key on a WorkQueue. What it raises is logged, and the event is not repeated: a bad event must not be
    retried for ever.

    An object that cannot be read is not deleted: it stays as it was last read, and is named in `unreadable`.

    `synced` is set after the first complete list has been handed on.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        on_change: OnChange[T],
        *,
        selector: ListSelector = EVERYTHING,
        backoff: Backoff = Backoff(),  # noqa: B008 -- a frozen value
    ) -> None:
        self.resource = resource
        self.synced = Event()
        self._api = api
        self._on_change = on_change
        self._selector = selector
        self._backoff = backoff
        self._entries: dict[Key, ObjectEntry[T]] = {}
        self._unreadable: frozenset[Key] = frozenset()
        self._version = ""
        self._failures = 0
        self._stopped = Event()
        self._watch: Watch[T] | None = None
        self._lock = Lock()
        self._thread: Thread | None = None

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return an object as it was last seen; any thread may ask."""
        entry = self._entries.get((namespace, name))
        return entry.value if entry else None

    def values(self) -> list[T]:
        """Return all objects as they were last seen; any thread may ask."""
        return [entry.value for entry in list(self._entries.values())]

    @property
    def unreadable(self) -> frozenset[Key]:
        """Return what is there and could not be read when it was last seen; any thread may ask.

        Ask for it before `values`: what becomes readable meanwhile is then in one of the two at least.
        """
        return self._unreadable

    def start(self) -> None:
        """Run in a thread of its own until `close`."""
        self._thread = Thread(target=self.run, name=f"watch {self.resource.plural}", daemon=True)
        self._thread.start()

    def close(self, seconds: float = 5.0) -> None:
        """End `run` from any thread and wait for its thread, where `start` made one, at most so long."""
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
                # A server whose words cannot be read says them again: only a list leads past them.
                if error.expired or error.unreadable:
                    self._version = ""
                self._failures += 1
                self._log_error(error)
                retry_after = error.retry_after
            except Exception:  # noqa: BLE001 -- the thread must live
                # Nothing above us could do better, and a thread that ends silently is the worst answer.
                self._failures += 1
                _LOG.exception("watch failed", extra=fields(resource=self.resource.plural))
            self._stopped.wait(self._backoff.pause(self._failures, retry_after))

    def _list_and_watch(self) -> bool:
        """List where that is needed, then watch until the watch ends; return whether that led anywhere."""
        if not self._version:
            self._list()
        if self._stopped.is_set():
            return False
        watch = self._api.watch(self.resource, self._version, self._selector)
        started = time.monotonic()
        with self._lock:
            self._watch = watch
            if self._stopped.is_set():
                watch.close()
        fruitful = False
        try:
            for event in watch:
                self._apply(event)
                fruitful = True
        finally:
            watch.close()
            with self._lock:
                self._watch = None
            fruitful = fruitful or time.monotonic() - started >= _SHORT_WATCH_SECONDS
            if fruitful:
                # Also where it broke off: a network that cuts us every few minutes is no server that is away.
                self._failures = 0
        return fruitful

    def _list(self) -> None:
        seen: set[Key] = set()
        unreadable: set[Key] = set()
        version = ""
        for page in self._api.list_pages(self.resource, self._selector):
            version = page.resource_version
            for entry in page.entries:
                seen.add(entry.key)
                self._upsert(entry)
            unreadable.update(page.unreadable)
            if self._stopped.is_set():
                return
        self._unreadable = frozenset(unreadable)
        for key in self._entries.keys() - seen - unreadable:
            self._delete(key)
        self._version = version
        self.synced.set()

    def _apply(self, event: WatchEvent[T]) -> None:
        key = event.entry.key if event.entry else event.unreadable
        if key is not None and event.change is Change.DELETED:
            self._delete(key)
        elif event.entry is not None:
            self._upsert(event.entry)
        elif key is not None:
            self._unreadable |= {key}
        self._version = event.resource_version

    def _upsert(self, entry: ObjectEntry[T]) -> None:
        old = self._entries.get(entry.key)
        self._entries[entry.key] = entry
        self._unreadable -= {entry.key}
        if old is not None and old.resource_version == entry.resource_version:
            return
        self._notify(old.value if old else None, entry.value)

    def _delete(self, key: Key) -> None:
        old = self._entries.pop(key, None)
        self._unreadable -= {key}
        if old is not None:
            self._notify(old.value, None)

    def _notify(self, old: T | None, new: T | None) -> None:
        try:
            self._on_change(old, new)
        except Exception:  # noqa: BLE001 -- whatever a handler does, the watch goes on
            _LOG.exception("handler failed; the event is dropped", extra=fields(resource=self.resource.plural))

    def _log_error(self, error: ApiError) -> None:
        if self._stopped.is_set():
            return
        level = logging.INFO if error.expired or self._failures == 1 else logging.WARNING
        log_fields = fields(resource=self.resource.plural, failures=self._failures, why=str(error))
        _LOG.log(level, "watch interrupted", extra=log_fields)
