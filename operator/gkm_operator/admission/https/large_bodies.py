"""A limit on how many large request bodies are held at once: the others wait unread, in their sender's buffers.

A body counts from when it is read until it is decoded, since decoding makes up to four times its bytes of it. One that
takes long gives way as soon as another waits: an API server sends 4 MiB in some hundred milliseconds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from gkm_operator.admission.https.connection_limits import ConnectionSlot, SessionStage

LIMIT = 4
LARGE_SECONDS = 1.0
"""How long a large body may take to arrive while others wait."""

WAIT_SECONDS = 2.0


class LargeBodies:
    """Who holds a large body, at most `limit`, and who waits for that. For one event loop."""

    def __init__(self, limit: int, evict: Callable[[ConnectionSlot], None]) -> None:
        """`evict` ends the connection of a place, and calls `leave`."""
        self._limit = limit
        self._evict = evict
        self._holders: dict[ConnectionSlot, float] = {}
        self._waiting: OrderedDict[asyncio.Future[None], ConnectionSlot] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    async def enter(self, place: ConnectionSlot) -> bool:
        """Wait until this place may hold a large body; return False when it may not within WAIT_SECONDS."""
        self._grant()
        if len(self._holders) < self._limit:
            self._hold(place)
            return True
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = place
        try:
            self._evict_late()
            async with asyncio.timeout(WAIT_SECONDS):
                await turn
        except TimeoutError:
            return place in self._holders
        finally:
            self._waiting.pop(turn, None)
        return True

    def leave(self, place: ConnectionSlot) -> None:
        """Note that this place holds no large body any more. Idempotent."""
        if self._holders.pop(place, None) is not None:
            self._grant()

    def _grant(self) -> None:
        while self._waiting and len(self._holders) < self._limit:
            turn, place = self._waiting.popitem(last=False)
            if not turn.done():
                self._hold(place)
                turn.set_result(None)

    def _hold(self, place: ConnectionSlot) -> None:
        loop = asyncio.get_running_loop()
        self._holders[place] = loop.time()
        loop.call_later(LARGE_SECONDS, self._evict_late)

    def _evict_late(self) -> None:
        """Evict who has been at it for too long, one for each that waits."""
        latest = asyncio.get_running_loop().time() - LARGE_SECONDS
        late = [
            each for each, since in self._holders.items() if since <= latest and each.stage is not SessionStage.JUDGED
        ]
        for place in late[: len(self._waiting)]:
            self._evict(place)
