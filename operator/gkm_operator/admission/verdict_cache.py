"""Caches positive verdicts for some minutes, so that an image which many caches name is verified once."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from gkm.api.errors import Reason
from gkm.hoststate.lru import LRUCache
from gkm.images.reference import Reference
from gkm.images.signatures.verify import Verdict

from gkm_operator import metrics
from gkm_operator.images import ImageChecker, ImageClaims

CACHE_SECONDS = 300.0
"""How long a revoked signature still counts here. Nodes pull nothing on its account: the controllers verify anew."""

MAX_VERDICTS = 4096

_Key = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class _CachedVerdict:
    verdict: Verdict
    stamp: Hashable
    until: float


class VerdictCache:
    """`images` with positive verdicts cached by repository, digest and namespace. Thread-safe.

    Every call resolves a tag, because it may have moved. Only `verified is True` is cached, because a signature may be
    added a second after a refusal. Beyond `limit` the least recently used verdict is dropped. `stamp` must change with
    everything else that a verdict depends on: a verdict counts only under the stamp that it was made with.
    """

    def __init__(
        self,
        images: ImageChecker,
        stamp: Callable[[], Hashable],
        *,
        seconds: float = CACHE_SECONDS,
        limit: int = MAX_VERDICTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._images = images
        self._stamp = stamp
        self._seconds = seconds
        self._clock = clock
        self._verdicts: LRUCache[_Key, _CachedVerdict] = LRUCache(limit)

    def check_allowed(self, image: str, namespace: str | None) -> None:
        """See ImageVerifier."""
        self._images.check_allowed(image, namespace)

    def resolve(self, image: str) -> str:
        """See ImageVerifier."""
        return self._images.resolve(image)

    def verify(self, image: str, digest: str, namespace: str | None) -> Verdict:
        """Return the verdict on this digest, without its findings when it was cached; raise GKMError."""
        started, stamp = self._clock(), self._stamp()
        key = (Reference.parse(image).name, digest, namespace)
        cached = self._verdicts.get(key)
        if cached is not None and cached.stamp == stamp and started < cached.until:
            metrics.VERIFY_SECONDS.labels("remembered").observe(self._clock() - started)
            return cached.verdict
        verdict = self._images.verify(image, digest, namespace)
        metrics.VERIFY_SECONDS.labels(_result(verdict)).observe(self._clock() - started)
        # If a file changed meanwhile, it is unknown which version the verdict used.
        if verdict.verified is True and self._stamp() == stamp:
            without_findings = replace(verdict, findings=())
            self._verdicts.put(key, _CachedVerdict(without_findings, stamp, started + self._seconds))
        return verdict

    def claims(self, image: str, digest: str) -> ImageClaims:
        """See ImageChecker."""
        return self._images.claims(image, digest)


def _result(verdict: Verdict) -> str:
    if verdict.reason is Reason.NOT_REQUIRED:
        return "off"
    return "verified" if verdict.verified else "unknown" if verdict.verified is None else "refused"
