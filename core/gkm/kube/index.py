"""An index of watched objects by keys other than their name, updated by changes."""

from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Index(Generic[K, T]):
    """Objects by key, after client-go's Indexer. A reflector feeds it with changes.

    `keys` returns the index keys of an object, `identity` distinguishes objects of one key. Both must depend on the
    object alone. Thread-safe; a key is removed with its last object. A key has few objects: a change takes time in
    proportion to them, and an object little memory.
    """

    def __init__(self, keys: Callable[[T], Iterable[K]], identity: Callable[[T], Hashable]) -> None:
        self._keys = keys
        self._identity = identity
        self._objects: dict[K, tuple[T, ...]] = {}
        self._lock = Lock()

    def change(self, old: T | None, new: T | None) -> None:
        """Apply a change: (None, new), (old, new) or (old, None)."""
        with self._lock:
            if old is not None:
                for key in self._keys(old):
                    self._set(key, self._others(key, old))
            if new is not None:
                for key in self._keys(new):
                    self._set(key, (*self._others(key, new), new))

    def get(self, key: K) -> tuple[T, ...]:
        """Return the objects of a key, in no particular order."""
        return self._objects.get(key, ())

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._objects)

    def _others(self, key: K, than: T) -> tuple[T, ...]:
        identity = self._identity(than)
        return tuple([entry for entry in self._objects.get(key, ()) if self._identity(entry) != identity])

    def _set(self, key: K, objects: tuple[T, ...]) -> None:
        if objects:
            self._objects[key] = objects
        else:
            self._objects.pop(key, None)
