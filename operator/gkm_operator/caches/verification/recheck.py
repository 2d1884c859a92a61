"""When an image is looked at again. Values and decisions on them; nothing here asks a registry."""

import random
from dataclasses import dataclass

from gkm.api.caches import Cache
from gkm.api.policies import Verification

from gkm_operator.caches import status
from gkm_operator.caches.nodes.totals import CacheKey
from gkm_operator.caches.outcome import Outcome

NEVER = float("inf")
PER_SECOND = 50.0
"""So many caches a second are handed out when all are looked at anew: 20,000 take 7 minutes."""
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class RecheckSchedule:
    """What the configuration says: seconds between two looks (0: never again), and the files that policies name."""

    seconds: float = 0.0
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, verification: Verification) -> "RecheckSchedule":
        """Return what is configured; where nothing is verified, time and files change nothing."""
        if verification.mode == "off":
            return cls()
        return cls(verification.recheck_interval, tuple(sorted(set(verification.files()))))

    def pause(self, cache: Cache) -> float:
        """Return after how many seconds the image of a cache is looked at again, with some jitter; NEVER for never.

        Under Track that is the interval of the cache, where it is the shorter one.
        """
        policy = cache.spec.update_policy
        wanted = min(self.seconds or NEVER, policy.seconds if policy.tracks else NEVER)
        return wanted * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- spreads load, hides nothing


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What came out of looking at a cache's image, and what it was based on.

    `asked` is what of the cache the registry was asked about, `round` counts what makes every answer old, `stood` is
    the digest that the status had when the look began, `due` when the next one is (monotonic seconds).
    """

    key: CacheKey
    outcome: Outcome
    asked: tuple[object, ...]
    round: int
    stood: str | None
    due: float

    def is_current(self, cache: Cache) -> bool:
        """Return whether the outcome is about the cache as it is.

        Not for another image; nor where another digest stands than the one that the look began with or came to: then
        somebody else, the next leader, has moved on meanwhile, and this answer is the older one.
        """
        return self.outcome.image == cache.spec.image and status.pinned_digest(cache) in (
            self.stood,
            self.outcome.digest,
        )

    def seconds_left(self, cache: Cache, round_: int, now: float) -> float:
        """Return for how many seconds more nothing need be asked; 0 where it must be now."""
        if not self.is_current(cache) or (self.asked, self.round) != (check_key(cache), round_):
            return 0.0
        return max(0.0, self.due - now)


def check_key(cache: Cache) -> tuple[object, ...]:
    """Return what of a cache the registry is asked about, as whom, and how often."""
    return cache.spec.image, cache.spec.image_pull_secrets, cache.spec.update_policy
