"""A bounded map that evicts the least recently used key. Keys often come from users, so no cache may grow with them."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import RLock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """At most `limit` values by key. Every method is atomic; a get or a put makes its key the most recently used."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = RLock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if absent."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key, and evict the least recently used key beyond the limit."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._limit:
                self._values.popitem(last=False)

    def remove(self, key: K) -> None:
        """Remove a key, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def get_or_create(self, key: K, create: Callable[[], V]) -> V:
        """Return the value of a key, created if it is missing while other threads wait.

        `create` must not use this cache. Raises what `create` does.
        """
        with self._lock:
            if key not in self._values:
                self.put(key, create())
            self._values.move_to_end(key)
            return self._values[key]

    def items(self) -> list[tuple[K, V]]:
        """Return keys and values, the least recently used first."""
        with self._lock:
            return list(self._values.items())
