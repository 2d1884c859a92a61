"""A model of a registry in virtual time: a limit of requests, answered by 429 beyond, and a bandwidth shared fairly."""

import heapq
from collections import Counter
from dataclasses import dataclass, field

WHOLE = 100


@dataclass(frozen=True)
class RegistryLimits:
    """The limits of a registry. Bytes and requests per second; `retry_after` seconds, 0 for no such header.

    `closed_until`: until this time it answers 429 to everything.
    """

    bandwidth: float
    requests: float = float("inf")
    retry_after: float = 0.0
    closed_until: float = 0.0


@dataclass
class RegistryModel:
    """A registry, and what it has seen. Times are seconds of the simulation and never decrease."""

    limits: RegistryLimits
    node_bandwidth: float
    """The most bytes per second that one node receives."""
    requests: Counter[int] = field(default_factory=Counter)
    """Requests by second, the refused ones included."""
    refused: int = 0
    sent: float = 0.0
    _tokens: float = 0.0
    _refilled: float = 0.0
    _work: float = 0.0
    """Bytes that a download would have received since the beginning, had it been there all the time."""
    _worked: float = 0.0
    _running: int = 0
    _marks: list[tuple[float, int, int]] = field(default_factory=list)
    """(work, node, percent): what each download waits for."""

    def admit(self, now: float) -> bool:
        """Count a request; return whether it is within the limit, a token bucket of one second."""
        self.requests[int(now)] += 1
        limit = self.limits.requests
        self._tokens = min(limit, self._tokens + (now - self._refilled) * limit) if limit < float("inf") else limit
        self._refilled = now
        if self._tokens < 1.0 or now < self.limits.closed_until:
            self.refused += 1
            return False
        self._tokens -= 1.0
        return True

    def begin(self, node: int, size: float, percents: tuple[int, ...], now: float) -> None:
        """Begin a download; `next_mark` returns when it reaches each percentage."""
        self._advance(now)
        for percent in percents:
            heapq.heappush(self._marks, (self._work + size * percent / 100, node, percent))
        self._running += 1

    def next_mark(self) -> tuple[float, int, int] | None:
        """Return (time, node, percent) of the next download that reaches a percentage, if none begins before."""
        if not self._marks:
            return None
        work, node, percent = self._marks[0]
        return self._worked + max(0.0, work - self._work) / self._rate, node, percent

    def take_mark(self, now: float) -> tuple[int, int]:
        """Remove the mark that `next_mark` returned; return (node, percent)."""
        self._advance(now)
        _, node, percent = heapq.heappop(self._marks)
        self._running -= percent == WHOLE
        return node, percent

    @property
    def _rate(self) -> float:
        return min(self.node_bandwidth, self.limits.bandwidth / max(1, self._running))

    def _advance(self, now: float) -> None:
        received = (now - self._worked) * self._rate
        self._work += received
        self.sent += received * self._running
        self._worked = now
