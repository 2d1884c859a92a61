"""Objects of a watch found by something else than their name, kept by differences."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Index(Generic[K, T]):
    """Objects by a key, after client-go's Indexer: fed with what a reflector hands on, never listed anew.

    `key` is what objects are asked for by, `identity` tells two objects of one key apart. Both must be functions of
    the object alone. Thread-safe; an object costs two entries of a dict, and a key goes with its last object.
    """

    def __init__(self, key: Callable[[T], K], identity: Callable[[T], Hashable]) -> None:
        self._key = key
        self._identity = identity
        self._objects: dict[K, dict[Hashable, T]] = {}
        self._lock = Lock()

    def change(self, old: T | None, new: T | None) -> None:
        """Take in a difference: (None, new), (old, new) or (old, None)."""
        with self._lock:
            if old is not None:
                self._remove(old)
            if new is not None:
                self._objects.setdefault(self._key(new), {})[self._identity(new)] = new

    def get(self, key: K) -> tuple[T, ...]:
        """Return the objects of a key, in no order that means anything."""
        with self._lock:
            return tuple(self._objects.get(key, {}).values())

    def __len__(self) -> int:
        """Return how many keys have objects."""
        return len(self._objects)

    def _remove(self, old: T) -> None:
        key = self._key(old)
        objects = self._objects.get(key, {})
        objects.pop(self._identity(old), None)
        if not objects:
            self._objects.pop(key, None)
