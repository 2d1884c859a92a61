"""The schedule of rechecks: values and decisions on them, without access to registries."""

import random
from dataclasses import dataclass

from gkm.api.caches import Cache
from gkm.api.policies import Verification
from gkm.api.watched_caches import oversized

from gkm_operator.caches import status
from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.caches.outcome import Outcome

NEVER = float("inf")
PER_SECOND = 50.0
"""Rate at which caches are enqueued when all are verified again: 20,000 take 7 minutes."""
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class RecheckSchedule:
    """The configured seconds between two checks (0: never again), and the files that policies name."""

    seconds: float = 0.0
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, verification: Verification) -> "RecheckSchedule":
        """Return the configured schedule; in the mode `off` time and files change nothing."""
        if verification.mode == "off":
            return cls()
        return cls(verification.recheck_interval, tuple(sorted(set(verification.files()))))

    def pause(self, cache: Cache) -> float:
        """Return the seconds until the recheck of a cache's image, with some jitter; NEVER for never.

        With the update policy Track, the interval of the cache applies if it is shorter.
        """
        policy = cache.spec.update_policy
        wanted = min(self.seconds or NEVER, policy.seconds if policy.tracks else NEVER)
        return wanted * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- spreads load, hides nothing


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of checking a cache's image, and its basis.

    `checked` are the fields of the cache that the check used, `generation` counts events that outdate every result,
    `pinned` is the digest in the status when the check began, `due` is the time of the recheck (monotonic seconds).
    """

    key: CacheKey
    outcome: Outcome
    checked: tuple[object, ...]
    generation: int
    pinned: str | None
    due: float

    def is_current(self, cache: Cache) -> bool:
        """Return whether the outcome is about the cache as it is now.

        It is not if the cache names another image, or if its status has a digest that the check neither began with nor
        ended with: then another process, the next leader, has written a newer result.
        """
        return self.outcome.image == cache.spec.image and status.pinned_digest(cache) in (
            self.pinned,
            self.outcome.digest,
        )

    def remaining_seconds(self, cache: Cache, generation: int, now: float) -> float:
        """Return the seconds until the next check is due; 0 when it is due now."""
        if not self.is_current(cache) or (self.checked, self.generation) != (check_key(cache), generation):
            return 0.0
        return max(0.0, self.due - now)


def check_key(cache: Cache) -> tuple[object, ...]:
    """Return what determines the check of a cache: image, credentials, interval, and whether they are held."""
    return cache.spec.image, cache.spec.image_pull_secrets, cache.spec.update_policy, bool(oversized(cache))
