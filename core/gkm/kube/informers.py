"""One watch of a kind in a process, for all its readers.

A kind has one type here, thin enough to hold thousands of objects, and each reader derives from it what it needs
(gkm.kube.memory bounds it). A watch starts with the first reader that starts it; a reader that subscribes later gets
what is there first. So a process has one list, one connection and one copy of the objects, for all readers.

Readers that need different objects of a kind `select` them. The watch covers what the readers need that have started,
and holds no other object: while one reader has started, the API server sends what that one selects; from the second on,
it sends everything, because no selector of the API covers two.
"""

from collections.abc import Callable
from threading import Event, Lock
from typing import Any, Generic, TypeVar

from gkm.kube.api import EVERYTHING, Api, Key, ListSelector
from gkm.kube.reflector import OnChange, Reflector
from gkm.kube.resources import Resource

T = TypeVar("T")
_Kind = tuple[str, str]
"""Version and plural of a kind."""


class Selection(Generic[T]):
    """One reader's part of a shared watch: the reader sees only the objects that it selects."""

    def __init__(
        self, shared: "_SharedWatch[T]", wants: Callable[[T], bool], selector: ListSelector, on_change: OnChange[T]
    ) -> None:
        self.synced = Event()
        """Set after `on_change` got the first complete list."""
        self.wants = wants
        self.selector = selector
        self._shared = shared
        self._on_change = on_change

    @property
    def resource(self) -> Resource[T]:
        """Return the resource that the shared watch is about."""
        return self._shared.reflector.resource

    @property
    def unreadable(self) -> frozenset[Key]:
        """Return the keys of watched objects that exist and cannot be decoded; the reader may need any of them."""
        return self._shared.reflector.unreadable

    def get(self, name: str, namespace: str = "") -> T | None:
        """Return a selected object as last observed, None if there is none. Thread-safe."""
        found = self._shared.reflector.get(name, namespace)
        return found if found is not None and self.wants(found) else None

    def start(self) -> None:
        """Start the shared watch, or widen it for this reader; a second call has no effect."""
        self._shared.add(self)
        self._shared.reflector.start()

    def close(self, seconds: float = 5.0) -> None:
        """End the shared watch for all readers."""
        self._shared.reflector.close(seconds)

    def change(self, old: T | None, new: T | None) -> None:
        """Pass a change of an object on to this reader, if the reader selects the object."""
        before, after = (value if value is not None and self.wants(value) else None for value in (old, new))
        if before is not None or after is not None:
            self._on_change(before, after)


class _SharedWatch(Generic[T]):
    """One watch that covers what the started selections need."""

    def __init__(self, api: Api, resource: Resource[T]) -> None:
        self.reflector = Reflector(api, resource, retain=self._is_wanted)
        self._started: tuple[Selection[T], ...] = ()
        self._lock = Lock()

    def add(self, selection: Selection[T]) -> None:
        with self._lock:
            if selection in self._started:
                return
            self._started = (*self._started, selection)
            self.reflector.subscribe(selection.change)
            selectors = {each.selector for each in self._started}
            self.reflector.select(selectors.pop() if len(selectors) == 1 else EVERYTHING, selection.synced)

    def _is_wanted(self, value: T) -> bool:
        return any(each.wants(value) for each in self._started)


class Informers:
    """The shared watches of a process, after client-go's SharedInformerFactory. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._reflectors: dict[_Kind, Reflector[Any]] = {}
        self._selected: dict[_Kind, _SharedWatch[Any]] = {}
        self._lock = Lock()

    def of(self, resource: Resource[T]) -> Reflector[T]:
        """Return the shared watch of a kind; the caller subscribes to it and starts it.

        Raises:
            ValueError: another reader has it as another type.
        """
        with self._lock:
            key = (resource.api_version, resource.plural)
            found = self._reflectors.setdefault(key, Reflector(self._api, resource))
        _check(found, resource)
        return found

    def select(
        self,
        resource: Resource[T],
        on_change: OnChange[T],
        *,
        wants: Callable[[T], bool],
        selector: ListSelector = EVERYTHING,
    ) -> Selection[T]:
        """Return a selection of the shared watch of a kind; the caller starts it.

        `wants` decides alone, from an object alone: the selector only spares what the API server need not send.

        Raises:
            ValueError: another reader has it as another type.
        """
        with self._lock:
            key = (resource.api_version, resource.plural)
            shared = self._selected.setdefault(key, _SharedWatch(self._api, resource))
        _check(shared.reflector, resource)
        return Selection(shared, wants, selector, on_change)


def _check(found: Reflector[Any], resource: Resource[Any]) -> None:
    if found.resource != resource:
        raise ValueError(f"{resource.plural} are watched already, as {found.resource.type.__name__}")
