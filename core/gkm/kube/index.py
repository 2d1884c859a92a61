"""An index of watched objects by keys other than their name, updated by changes."""

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Index(Generic[K, T]):
    """Objects by key, after client-go's Indexer. A reflector feeds it with changes.

    `keys` returns the index keys of an object, `identity` distinguishes objects of one key. Both must depend on the
    object alone. Thread-safe; a key is removed with its last object. A change takes the same time for any number of
    objects of a key, because users decide that number; `get` takes time in proportion to them.
    """

    def __init__(self, keys: Callable[[T], Iterable[K]], identity: Callable[[T], Hashable]) -> None:
        self._keys = keys
        self._identity = identity
        self._objects: dict[K, dict[Hashable, T]] = {}
        self._lock = Lock()

    def change(self, old: T | None, new: T | None) -> None:
        """Apply a change of an object: (None, new) adds, (old, new) changes, (old, None) removes."""
        with self._lock:
            if old is not None:
                self._remove(old)
            if new is not None:
                identity = self._identity(new)
                for key in self._keys(new):
                    self._objects.setdefault(key, {})[identity] = new

    def get(self, key: K, limit: int | None = None) -> tuple[T, ...]:
        """Return at most `limit` objects with this index key, in no particular order."""
        with self._lock:
            return tuple(islice(self._objects.get(key, {}).values(), limit))

    def count(self, key: K) -> int:
        """Return the number of objects with this index key."""
        with self._lock:
            return len(self._objects.get(key, ()))

    def keys(self) -> list[K]:
        """Return all index keys, in no particular order."""
        with self._lock:
            return list(self._objects)

    def _remove(self, old: T) -> None:
        identity = self._identity(old)
        for key in self._keys(old):
            objects = self._objects.get(key)
            if objects is not None and objects.pop(identity, None) is not None and not objects:
                del self._objects[key]
