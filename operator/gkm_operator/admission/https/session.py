"""What goes on with one client, from the handshake to its end, each step within its time."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from gkm.hoststate.logs import fields

from gkm_operator.admission.https.connection import Connection
from gkm_operator.admission.https.connection_limits import ConnectionLimiter, ConnectionSlot, SessionStage
from gkm_operator.admission.https.http1 import BadRequest, HttpConnection, HttpRequest, HttpResponse, Limits
from gkm_operator.admission.https.large_bodies import LargeBodies
from gkm_operator.admission.https.throttled_log import ThrottledLog

_LOG = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""For a whole request, from its first byte; for the first on a connection from when that was taken, handshake included.
An API server takes milliseconds, and waits ten seconds for all."""

WRITE_SECONDS = 5.0
PART_SECONDS = 2.0

IDLE_SECONDS = 120.0
"""Between two requests. More than the 90 after which Go's client lets go of an idle connection by itself: a request
that meets our end on its way is lost, for Go does not repeat a POST."""

Answering = Callable[[HttpRequest, ConnectionSlot], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What all conversations share. Once `closing` is set, the next answer of each is its last."""

    limiter: ConnectionLimiter
    large: LargeBodies
    answering: Answering
    closing: asyncio.Event
    log: ThrottledLog


class HttpSession:
    """A client and what it holds. Ends by itself, or by `give_way`."""

    def __init__(self, connection: Connection, peer: str, host: SessionContext) -> None:
        self._connection = connection
        self._peer = peer
        self._host = host
        self._task: asyncio.Task[None] | None = None
        self._messages: HttpConnection | None = None
        self._parting = False

    def start(self) -> asyncio.Task[None] | None:
        """Take a place and begin; None when there is none."""
        place = self._host.limiter.acquire(self, _now())
        if place is None:
            self._connection.close()
            return None
        self._task = asyncio.get_running_loop().create_task(self._run(place))
        # Not within the task: one that is cancelled before its first step runs none of itself.
        self._task.add_done_callback(lambda _: self._end(place))
        return self._task

    def has_pending_data(self) -> bool:
        """Return whether something was not read yet that is going to be; after the last answer nothing is."""
        return not self._parting and self._connection.has_pending_data()

    def evict(self) -> None:
        """Let go of what was read, and end soon."""
        if self._messages is not None:
            self._messages.discard()
        if self._task is not None:
            self._task.cancel()

    def _end(self, place: ConnectionSlot) -> None:
        self._host.limiter.release(place)
        self._connection.close()
        if self._messages is not None:
            self._messages.discard()
        # A task that was cancelled has the error, which has the frames, which have us. Without this, all of that would
        # stay until the garbage collector comes by, which some hundred clients do not give the time to.
        self._task = self._messages = None

    async def _run(self, place: ConnectionSlot) -> None:
        limits = Limits(
            lambda size: self._host.limiter.reserve_bytes(place, size), lambda: self._host.large.enter(place)
        )
        messages = self._messages = HttpConnection(self._connection, limits)
        try:
            refused = None
            try:
                await self._converse(messages, place)
            except BadRequest as error:
                refused = error.answer
                self._host.log.warning("request refused", peer=self._peer, why=str(error))
            if refused is not None:
                # What was read of it is held no more while its sender is told so.
                messages.discard()
                self._host.limiter.release_bytes(place)
                await self._last(messages, place, refused)
        except ssl.SSLError as error:
            self._host.log.warning("no TLS", peer=self._peer, why=str(error))
        except TimeoutError:
            self._host.log.warning("too slow", peer=self._peer)
        except OSError:
            pass  # it has gone, and has nothing to be told
        except Exception:  # noqa: BLE001 -- a defect in one conversation costs that conversation
            _LOG.exception("conversation ended", extra=fields(peer=self._peer))

    async def _converse(self, messages: HttpConnection, place: ConnectionSlot) -> None:
        async with asyncio.timeout(READ_SECONDS):
            await self._connection.shake_hands()
            asked = await messages.read()
        while True:
            answer = await self._host.answering(asked, place)
            asked.take()  # nobody wanted it: it is not counted from now on, so it must not be held
            place.enter(SessionStage.UNDER_WAY, _now())
            self._host.limiter.release_bytes(place)
            if messages.last or self._host.closing.is_set():
                await self._last(messages, place, answer)
                return
            async with asyncio.timeout(WRITE_SECONDS):
                await messages.write(answer, last=False)
            place.enter(SessionStage.IDLE, _now())
            if self._host.closing.is_set() or not await self._begun(messages):
                return
            place.enter(SessionStage.UNDER_WAY, _now())
            async with asyncio.timeout(READ_SECONDS):
                asked = await messages.read()

    async def _begun(self, messages: HttpConnection) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                return await messages.begun()
        return False

    async def _last(self, messages: HttpConnection, place: ConnectionSlot, answer: HttpResponse) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await messages.write(answer, last=True)
        self._parting = True
        place.enter(SessionStage.IDLE, _now())
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_SECONDS):
                await self._connection.part()


def _now() -> float:
    return asyncio.get_running_loop().time()
