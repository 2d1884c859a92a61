"""Good verdicts, kept for some minutes: an image that many caches name is verified once. Decides nothing."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

from gkm.api.errors import Reason
from gkm.hoststate.lru import LRUCache
from gkm.images.reference import Reference
from gkm.images.signatures.verified_images import ImageVerifier
from gkm.images.signatures.verify import Verdict

from gkm_operator import metrics

KEEP_SECONDS = 300.0
"""A signature that is taken back counts here for so long. Nothing is pulled by it: the controllers verify anew."""

MAX_KEPT = 4096

_Key = tuple[str, str, str | None]


class ImageChecker(ImageVerifier, Protocol):
    """The questions of admission about images. Thread-safe, bounded in time."""

    def size(self, image: str, digest: str) -> int:
        """Return how large it claims to be; raises GKMError, NOT_FOUND when its registry does not show it."""
        ...


@dataclass(frozen=True, slots=True)
class _CachedVerdict:
    verdict: Verdict
    until: float


class VerdictCache:
    """`images`, whose good verdicts are remembered by repository, digest and namespace. Thread-safe.

    A tag is resolved each time: it may have moved. Of verdicts only `verified is True` is kept, because a signature
    may be added a second after a refusal; of more than `limit`, the one that was asked for longest ago goes. `stamp`
    must change with everything else that a verdict hangs on: then all of them go.
    """

    def __init__(
        self,
        images: ImageChecker,
        stamp: Callable[[], Hashable],
        *,
        seconds: float = KEEP_SECONDS,
        limit: int = MAX_KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._images = images
        self._stamp_now = stamp
        self._seconds = seconds
        self._clock = clock
        self._stamp: Hashable = None
        self._kept: LRUCache[_Key, _CachedVerdict] = LRUCache(limit)
        self._lock = Lock()

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """Accept an image that the configuration lets us ask for; raises GKMError."""
        self._images.check_allowed(image, namespace)

    def resolve(self, image: str) -> str:
        """Return the digest that a reference names now; raises GKMError."""
        return self._images.resolve(image)

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest, without its findings where it is known; raises GKMError."""
        begun, stamp = self._clock(), self._stamp_now()
        key = (Reference.parse(image).name, digest, namespace)
        known = self._known(key, stamp, begun)
        if known is not None:
            metrics.record_verification("remembered", self._clock() - begun)
            return known
        verdict = self._images.verify(image, digest, namespace)
        metrics.record_verification(_result(verdict), self._clock() - begun)
        # A file that changed meanwhile: nobody can say which of the two the verdict was reached with.
        if verdict.verified is True and self._stamp_now() == stamp:
            self._store(key, stamp, _CachedVerdict(replace(verdict, findings=()), begun + self._seconds))
        return verdict

    def size(self, image: str, digest: str) -> int:
        """Return how large it claims to be; raises GKMError."""
        return self._images.size(image, digest)

    def _known(self, key: _Key, stamp: Hashable, now: float) -> Verdict | None:
        with self._lock:
            if stamp != self._stamp:
                self._kept.clear()
                self._stamp = stamp
            kept = self._kept.get(key)
            if kept is None:
                return None
            if now >= kept.until:
                self._kept.remove(key)
                return None
            return kept.verdict

    def _store(self, key: _Key, stamp: Hashable, kept: _CachedVerdict) -> None:
        with self._lock:
            if stamp != self._stamp:
                return
            self._kept.put(key, kept)


def _result(verdict: Verdict) -> str:
    if verdict.reason is Reason.NOT_REQUIRED:
        return "off"
    return "verified" if verdict.verified else "unknown" if verdict.verified is None else "refused"
