"""Reads single objects from the API server: a bounded number at a time, each for all who need it, and remembers them.

A slow API server must not occupy the threads that review, nor a namespace those of others (docs/decisions/0006). An
absence is never remembered: the object may be created at any moment, and a decision without it would last.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from gkm.hoststate.lru import LRUCache
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.memory import held_bytes
from gkm.kube.resources import Resource

from gkm_operator.admission.domains.view import ViewUnavailable
from gkm_operator.admission.singleflight import Overloaded, SingleFlight

T = TypeVar("T")

READ_SECONDS = 2.0
"""For one object; a review has more of them (review_view.REVIEW_SECONDS)."""
THREADS, WAITING = 8, 32
MAX_OBJECTS = 4096
MAX_REMEMBERED_BYTES = 16 << 10
"""Of one object, so that all of them take 64 MiB at most; a larger one is read for each review that needs it."""

_Key = tuple[str, str, str]


class SingleReads:
    """Reads by kind, namespace and name. Thread-safe."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._flights: SingleFlight[Any] = SingleFlight(THREADS, READ_SECONDS, WAITING)
        self._found: LRUCache[_Key, tuple[float, Any]] = LRUCache(MAX_OBJECTS)

    def remembered(self, resource: Resource[T], namespace: str, name: str, seconds: float) -> T | None:
        """Return an object that was read within the last `seconds`; None without one."""
        found = self._found.get((resource.plural, namespace, name))
        if found is None or self._clock() >= found[0] + seconds:
            return None
        value: T = found[1]
        return value

    def get(self, resource: Resource[T], namespace: str, name: str, timeout: float = READ_SECONDS) -> T | None:
        """Return an object as it is now; None if it does not exist.

        Raises:
            ViewUnavailable: the API server does not answer within `timeout`, or too many reads are under way.
        """
        key, started = (resource.plural, namespace, name), self._clock()
        try:
            value: T | None = self._flights.run(
                key, (namespace,), lambda: self._api.find(resource, name, namespace), timeout
            )
        except (ApiError, Overloaded) as error:
            cause = "the API server does not answer in time" if isinstance(error, Overloaded) else str(error)
            raise ViewUnavailable(f"{resource.kind} {name[:253]} cannot be read: {cause}") from error
        if value is not None and held_bytes(value) <= MAX_REMEMBERED_BYTES:
            self._found.put(key, (started, value))
        return value
