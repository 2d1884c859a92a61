"""Read single ResourceClaims that pods name, to find whether they are for GPUs.

A watch would show the claims of all pods. Admission reads them for the same question (gkm_operator.admission.domains),
so both agree about what a set requires.
"""

import time
from collections.abc import Iterable

from gkm.hoststate.lru import LRUCache
from gkm.hoststate.pacing import Clock, TokenBucket
from gkm.kube.api import Api, Key
from gkm.kube.errors import ApiError
from gkm.kube.memory import MAX_HELD_BYTES, held_bytes
from gkm.kube.resources import CLAIMS

FOUND_SECONDS, ABSENT_SECONDS = 60.0, 5.0
"""Seconds for which a found or a missing claim is cached; a claim is immutable, but may be recreated."""
BURST, PER_SECOND = 100, 10.0
"""Rate limit of reads for one namespace."""
_MAX_CLAIMS, _MAX_NAMESPACES = 4096, 1024

UNSEEN_SECONDS = 30.0
"""Seconds between two attempts to read a claim that decides about a domain and cannot be read."""

Classes = tuple[str, ...]
Unseen = tuple[str, str]
"""Kind and name of a claim or claim template that cannot be read."""


def any_claim(unseen: Iterable[Unseen]) -> bool:
    """Return whether one of these unseen objects is a ResourceClaim; claim templates are watched and need no read."""
    return any(kind == CLAIMS.kind for kind, _ in unseen)


class ClaimReader:
    """Reads ResourceClaims from the API server and caches their device classes. Thread-safe."""

    def __init__(self, api: Api, clock: Clock = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._found: LRUCache[Key, tuple[float, Classes | None]] = LRUCache(_MAX_CLAIMS)
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(_MAX_NAMESPACES)

    def device_classes(self, namespace: str, name: str) -> Classes | None:
        """Return the device classes that a ResourceClaim requests; None if the claim cannot be read now.

        Raises:
            ApiError: the API server does not answer.
        """
        until, classes = self._found.get((namespace, name)) or (0.0, None)
        if self._clock() < until:
            return classes
        bucket = self._buckets.get_or_create(namespace, lambda: TokenBucket(BURST, 1 / PER_SECOND, self._clock))
        if bucket.try_acquire():
            classes = self._read(namespace, name)
            seconds = ABSENT_SECONDS if classes is None else FOUND_SECONDS
            if held_bytes(classes) <= MAX_HELD_BYTES:  # one of hundreds of classes is read each time
                self._found.put((namespace, name), (self._clock() + seconds, classes))
        return classes

    def _read(self, namespace: str, name: str) -> Classes | None:
        try:
            return tuple(dict.fromkeys(self._api.get(CLAIMS, name, namespace).device_classes()))
        except ApiError as error:
            if error.forbidden or error.not_found or error.unreadable:
                return None
            raise
