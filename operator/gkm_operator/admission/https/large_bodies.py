"""A limit on the large request bodies in memory: further ones stay unread, in the buffers of their senders.

A body counts from the start of reading until it is decoded, because decoding needs up to four times its bytes. A slow
sender is evicted as soon as another one waits: an API server sends 4 MiB within some hundred milliseconds.
"""

import asyncio
from collections.abc import Callable

from gkm_operator.admission.https.connection_limits import ConnectionSlot, SessionStage

LIMIT = 4
LARGE_SECONDS = 1.0
"""How long a large body may take to arrive while others wait."""

WAIT_SECONDS = 2.0


class LargeBodies:
    """The slots that hold a large body, at most `limit`, while others wait in turn. For one event loop."""

    def __init__(self, limit: int, evict: Callable[[ConnectionSlot], None]) -> None:
        """`evict` ends the session of a slot and calls `leave`."""
        self._limit = limit
        self._evict = evict
        self._free = asyncio.Semaphore(limit)
        self._holders: dict[ConnectionSlot, float] = {}
        self._waiting: set[ConnectionSlot] = set()

    async def enter(self, slot: ConnectionSlot) -> bool:
        """Wait until this slot may hold a large body; return False when it may not within WAIT_SECONDS."""
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
