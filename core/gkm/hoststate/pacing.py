"""Limit how often an action happens: backoff between retries, a token bucket, and a minimum interval for each key.

These are values and clocks only. They never sleep: the caller does, where a stop event can end its wait. `clock`
returns monotonic seconds.
"""

import random
import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Clock = Callable[[], float]

_LARGEST_EXPONENT = 30
_SPREAD = 1.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds between retries: `first`, twice that, … at most `cap`; each is jittered between half and whole.

    Half of a pause is fixed, so that a retry never follows at once. The other half is random, so that the retries of
    many clients spread out.
    """

    first: float = 0.5
    cap: float = 30.0

    def longest_pause(self, failures: int) -> float:
        """Return the pause after this many failures in a row, without jitter."""
        return min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _LARGEST_EXPONENT))

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        """Return the pause after this many failures in a row; `at_least` is the pause that the server requested.

        An overloaded server requests the same pause from every client, so that one is spread as well: by half at most.
        """
        ours, requested = random.uniform(0.5, 1.0), at_least * random.uniform(1.0, _SPREAD)  # noqa: S311 -- spreads load only
        return max(self.longest_pause(failures) * ours, requested)


class TokenBucket:
    """A bucket of at most `burst` tokens, which gets one more every `interval` seconds. Thread-safe."""

    def __init__(self, burst: int, interval: float, clock: Clock = time.monotonic) -> None:
        self._burst = burst
        self._interval = interval
        self._clock = clock
        self._tokens = float(burst)
        self._refilled_at = clock()
        self._lock = Lock()

    def try_acquire(self) -> bool:
        """Take a token if one is available now; return whether one was."""
        with self._lock:
            self._refill()
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def reserve(self) -> float:
        """Take the next token even if it comes later; return the seconds until it is available."""
        with self._lock:
            self._refill()
            self._tokens -= 1.0
            return max(0.0, -self._tokens) * self._interval

    def _refill(self) -> None:
        now = self._clock()
        self._tokens = min(float(self._burst), self._tokens + (now - self._refilled_at) / self._interval)
        self._refilled_at = now


class MinimumInterval(Generic[K]):
    """Keeps events for the same key at least `seconds` apart. Not thread-safe.

    It grows with its keys: these must be few, or the caller must call `retain_only`.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last: dict[K, float] = {}

    def has_passed(self, key: K) -> bool:
        """Return whether the last recorded event of the key is longer ago than the interval; True without an event."""
        return self._clock() >= self._last.get(key, float("-inf")) + self._seconds

    def record(self, key: K) -> None:
        """Record an event for the key now."""
        self._last[key] = self._clock()

    def retain_only(self, keys: Collection[K]) -> None:
        """Forget the events of all other keys."""
        for key in self._last.keys() - set(keys):
            del self._last[key]
