"""What is made once for each host and kept while it is used."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

MAX_HOSTS = 64
"""Hosts are named by users: so many are remembered, the one that was used longest ago is forgotten first."""

T = TypeVar("T")


class LRUCache(Generic[T]):
    """One value for each host, made when it is first asked for. Thread-safe."""

    def __init__(self, factory: Callable[[str], T]) -> None:
        self._factory = factory
        self._values: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()

    def get(self, host: str) -> T:
        """Return the value of a host; raises what making it raises."""
        with self._lock:
            if host not in self._values:
                self._values[host] = self._factory(host)
                if len(self._values) > MAX_HOSTS:
                    self._values.popitem(last=False)
            self._values.move_to_end(host)
            return self._values[host]
