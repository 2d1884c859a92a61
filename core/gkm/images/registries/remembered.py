"""What is made once for each host and kept while it is used."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

MAX_HOSTS = 64
"""Hosts are named by users: so many are remembered, the one that was used longest ago is forgotten first."""

T = TypeVar("T")


class Remembered(Generic[T]):
    """One value for each host, made when it is first asked for. Thread-safe."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        self._known: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()

    def get(self, host: str) -> T:
        """Return the value of a host; raises what making it raises."""
        with self._lock:
            if host not in self._known:
                self._known[host] = self._make(host)
                if len(self._known) > MAX_HOSTS:
                    self._known.popitem(last=False)
            self._known.move_to_end(host)
            return self._known[host]
