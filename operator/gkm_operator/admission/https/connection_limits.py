"""Who may stay connected: a bounded number of places and of bytes, and who gives way when all are taken. No I/O.

Every client is taken for hostile. An honest API server sends a request within milliseconds, so of all whose request is
unfinished it is never the one that has been so for longest, nor does it hold the most.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class SessionStage(IntEnum):
    """What a client is about, in the order in which they give way."""

    IDLE = 0
    """Between two requests: it loses nothing but the connection."""
    UNDER_WAY = 1
    """It shakes hands, sends a request, or receives an answer."""
    JUDGED = 2
    """Its request is whole: it never gives way, and the pool bounds how many there are."""


class EvictableClient(Protocol):
    """Who holds a place."""

    def has_pending_data(self) -> bool:
        """Return whether something of it was not read yet."""

    def evict(self) -> None:
        """Let go of all that it holds, and end soon."""


@dataclass(eq=False, slots=True)
class ConnectionSlot:
    """One client's place. `since` is when its present stage began, in seconds of the caller's clock."""

    client: EvictableClient
    since: float
    stage: SessionStage = SessionStage.UNDER_WAY
    size: int = 0
    """Bytes of its request that are held."""

    def enter(self, stage: SessionStage, now: float) -> None:
        """Note what it is about from now on."""
        self.stage, self.since = stage, now


class ConnectionLimiter:
    """The places, at most `limit`, and all bytes that are held for them, at most `max_bytes`. For one thread."""

    def __init__(self, limit: int, max_bytes: int, let_go: Callable[[ConnectionSlot], None] = lambda _: None) -> None:
        """`let_go` is called when the bytes of a place are counted no more."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._taken: dict[ConnectionSlot, None] = {}
        self._let_go = let_go
        self.size = 0

    def __len__(self) -> int:
        return len(self._taken)

    def acquire(self, client: EvictableClient, now: float) -> ConnectionSlot | None:
        """Return a place; None when all are judged, so that nobody can give way."""
        if len(self._taken) >= self._limit:
            late = self._latest()
            if late is None:
                return None
            self.evict(late)
        place = ConnectionSlot(client, now)
        self._taken[place] = None
        return place

    def release(self, place: ConnectionSlot) -> None:
        """Give the place back. Idempotent."""
        self._taken.pop(place, None)
        self.release_bytes(place)

    def reserve_bytes(self, place: ConnectionSlot, size: int) -> bool:
        """Count `size` bytes more for it; False, and not counted, when it is itself the one that holds the most."""
        if place not in self._taken:
            return False
        place.size += size
        self.size += size
        while self.size > self._max_bytes:
            largest = max(
                (each for each in self._taken if each.stage is not SessionStage.JUDGED), key=lambda each: each.size
            )
            if largest is place:
                place.size -= size
                self.size -= size
                return False
            self.evict(largest)
        return True

    def release_bytes(self, place: ConnectionSlot) -> None:
        """Count its bytes no more."""
        self.size -= place.size
        place.size = 0
        self._let_go(place)

    def evict(self, place: ConnectionSlot) -> None:
        """Have one give way; its bytes are counted no more, and held no more either."""
        self.release(place)
        place.client.evict()

    def evict_idle(self) -> None:
        """Have all end that lose nothing by it."""
        for place in [each for each in self._taken if each.stage is SessionStage.IDLE]:
            if not place.client.has_pending_data():
                self.evict(place)

    def _latest(self) -> ConnectionSlot | None:
        for place in sorted(self._taken, key=lambda each: (each.stage, each.since)):
            # A request that has come while we looked elsewhere would be lost: Go's client does not repeat a POST.
            if place.stage is SessionStage.UNDER_WAY or (
                place.stage is SessionStage.IDLE and not place.client.has_pending_data()
            ):
                return place
        return None
