"""Limit what clients can use: connections, bytes of requests, large bodies in memory, and log lines.

Every client is treated as hostile. An honest API server sends a request within milliseconds, so among the clients with
an unfinished request it never has been sending longest, and never holds the most bytes. Its idle connections go only
when no client is slow: a request that it sends while its connection is closed is lost.

Large bodies beyond a few stay unread, in the buffers of their senders. A body counts from the start of reading until it
is decoded, because decoding needs up to four times its bytes. A slow sender is evicted as soon as another one waits: an
API server sends 4 MiB within some hundred milliseconds.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Clock, MinimumInterval

SLOW_SECONDS = 1.0
"""Seconds after which an active session is evicted before an idle one."""

LIMIT = 4
LARGE_SECONDS = 1.0
"""Seconds that a large body may take to arrive while others wait."""

WAIT_SECONDS = 2.0

SECONDS = 10.0


class SessionStage(IntEnum):
    """The stage of a client's session with the webhook, in the order of eviction; slow active sessions are first."""

    IDLE = 0
    """Waiting between two requests."""
    ACTIVE = 1
    """Performing the handshake, sending a request, or receiving a response."""
    IN_REVIEW = 2
    """Being reviewed: the session is never evicted, and the thread pool limits the number of such sessions."""


class EvictableClient(Protocol):
    """A client session that can be evicted."""

    def has_pending_data(self) -> bool:
        """Return whether the client has sent data that the session has not read yet."""

    def evict(self) -> None:
        """Free all memory of the session's request, and end the session soon."""


@dataclass(eq=False, slots=True)
class ConnectionSlot:
    """The slot of one client connection. `since` is the start of its present stage, in seconds of a monotonic clock."""

    client: EvictableClient
    since: float
    stage: SessionStage = SessionStage.ACTIVE
    size: int = 0
    """Bytes of the session's request in memory."""

    def enter(self, stage: SessionStage, now: float) -> None:
        """Record that the session enters a stage at the time `now`."""
        self.stage, self.since = stage, now


class ConnectionLimiter:
    """Limits connections to `limit` slots, and their requests to `max_bytes` in total. Not thread-safe."""

    def __init__(
        self, limit: int, max_bytes: int, on_release: Callable[[ConnectionSlot], None] = lambda _: None
    ) -> None:
        """Create the limiter; `on_release` is called when the bytes of a slot are freed."""
        self._limit = limit
        self._max_bytes = max_bytes
        self._slots: dict[ConnectionSlot, None] = {}
        self._on_release = on_release
        self.size = 0

    def acquire(self, client: EvictableClient, now: float) -> ConnectionSlot | None:
        """Return a slot for a client; evict another session if all are taken. None if all sessions are in review."""
        if len(self._slots) >= self._limit:
            evictable = self._find_evictable(now)
            if evictable is None:
                return None
            self.evict(evictable)
        slot = ConnectionSlot(client, now)
        self._slots[slot] = None
        return slot

    def release(self, slot: ConnectionSlot) -> None:
        """Release the slot of an ended session and its bytes. Idempotent."""
        self._slots.pop(slot, None)
        self.release_bytes(slot)

    def reserve_bytes(self, slot: ConnectionSlot, size: int) -> bool:
        """Reserve `size` more bytes of request for a slot, evicting larger requests.

        Return False if this request is the largest.
        """
        if slot not in self._slots:
            return False
        slot.size += size
        self.size += size
        while self.size > self._max_bytes:
            largest = max(
                (each for each in self._slots if each.stage is not SessionStage.IN_REVIEW), key=lambda each: each.size
            )
            if largest is slot:
                slot.size -= size
                self.size -= size
                return False
            self.evict(largest)
        return True

    def release_bytes(self, slot: ConnectionSlot) -> None:
        """Release the bytes that a slot has reserved."""
        self.size -= slot.size
        slot.size = 0
        self._on_release(slot)

    def evict(self, slot: ConnectionSlot) -> None:
        """Evict a session and release its slot and bytes."""
        self.release(slot)
        slot.client.evict()

    def evict_idle(self) -> None:
        """Evict every idle session whose client has sent no further data."""
        for slot in [each for each in self._slots if each.stage is SessionStage.IDLE]:
            if not slot.client.has_pending_data():
                self.evict(slot)

    def _find_evictable(self, now: float) -> ConnectionSlot | None:
        def order(slot: ConnectionSlot) -> tuple[bool, SessionStage, float]:
            is_slow = slot.stage is SessionStage.ACTIVE and now - slot.since > SLOW_SECONDS
            return not is_slow, slot.stage, slot.since

        for slot in sorted(self._slots, key=order):
            # An eviction would lose a request that arrived but was not read yet: Go's client does not repeat a POST.
            if slot.stage is SessionStage.ACTIVE or (
                slot.stage is SessionStage.IDLE and not slot.client.has_pending_data()
            ):
                return slot
        return None


class LargeBodies:
    """Limits sessions that read a large body; others wait in turn and evict slow ones. For one event loop."""

    def __init__(self, limit: int, evict: Callable[[ConnectionSlot], None]) -> None:
        """Create the limit; `evict` ends the session of a slot and calls `leave`."""
        self._limit = limit
        self._evict = evict
        self._free = asyncio.Semaphore(limit)
        self._holders: dict[ConnectionSlot, float] = {}
        self._waiting: set[ConnectionSlot] = set()

    async def enter(self, slot: ConnectionSlot) -> bool:
        """Wait until this slot may hold a large body; return False after WAIT_SECONDS."""
        loop = asyncio.get_running_loop()
        self._waiting.add(slot)
        try:
            self._evict_late()
            async with asyncio.timeout(WAIT_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(slot)
        self._holders[slot] = loop.time()
        loop.call_later(LARGE_SECONDS, self._evict_late)
        return True

    def leave(self, slot: ConnectionSlot) -> None:
        """Record that this slot no longer holds a large body. Idempotent."""
        if self._holders.pop(slot, None) is not None:
            self._free.release()

    def _evict_late(self) -> None:
        """Evict slots past LARGE_SECONDS, one for each slot that waits for the place of another."""
        latest = asyncio.get_running_loop().time() - LARGE_SECONDS
        late = [
            each
            for each, since in self._holders.items()
            if since <= latest and each.stage is not SessionStage.IN_REVIEW
        ]
        lacking = len(self._waiting) - (self._limit - len(self._holders))
        for slot in late[: max(0, lacking)]:
            self._evict(slot)


class ThrottledLog:
    """Logs each event at most once in `SECONDS` seconds, with the number of suppressed lines. Not thread-safe.

    Events are constants of this package, so there are few.
    """

    def __init__(self, log: logging.Logger, clock: Clock = time.monotonic) -> None:
        self._log = log
        self._interval: MinimumInterval[str] = MinimumInterval(SECONDS, clock)
        self._suppressed: Counter[str] = Counter()

    def warning(self, event: str, **details: object) -> None:
        """Log an event with its fields, unless it was logged a moment ago."""
        if not self._interval.has_passed(event):
            self._suppressed[event] += 1
            return
        self._interval.record(event)
        self._log.warning(event, extra=fields(**details, suppressed=self._suppressed.pop(event, None)))
