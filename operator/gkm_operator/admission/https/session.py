"""The session of one client, from the TLS handshake to the end, with a deadline for each step."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gkm.hoststate.logs import fields
from gkm.probes.messages import Page

from gkm_operator.admission.https.connection import Connection
from gkm_operator.admission.https.connection_limits import ConnectionLimiter, ConnectionSlot, SessionStage
from gkm_operator.admission.https.http1 import BadRequest, HttpConnection, HttpRequest
from gkm_operator.admission.https.large_bodies import LargeBodies
from gkm_operator.admission.https.throttled_log import ThrottledLog

_LOG = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""For a whole request, from its first byte; for the first request from the accept, handshake included. An API server
takes milliseconds, and waits ten seconds for the response."""

WRITE_SECONDS = 5.0
SHUTDOWN_SECONDS = 2.0

IDLE_SECONDS = 120.0
"""Between two requests. More than the 90 after which Go's client closes an idle connection itself: a request that
crosses our close on the wire is lost, because Go does not repeat a POST."""


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The objects that all sessions share. Once `closing` is set, the next response of each session is its last."""

    limiter: ConnectionLimiter
    large: LargeBodies
    respond: Callable[[HttpRequest, ConnectionSlot], Awaitable[Page]]
    closing: asyncio.Event
    log: ThrottledLog


class HttpSession:
    """A client's session and its memory. Ends by itself, or by `evict`."""

    def __init__(self, connection: Connection, peer: str, shared: SessionContext) -> None:
        self._connection = connection
        self._peer = peer
        self._shared = shared
        self._task: asyncio.Task[None] | None = None
        self._http: HttpConnection | None = None
        self._shutting_down = False

    def start(self) -> asyncio.Task[None] | None:
        """Acquire a slot and start the session; None when no slot is free."""
        slot = self._shared.limiter.acquire(self, _now())
        if slot is None:
            self._connection.close()
            return None
        self._task = asyncio.get_running_loop().create_task(self._run(slot))
        # As a callback, because a task that is cancelled before its first step runs none of its own code.
        self._task.add_done_callback(lambda _: self._end(slot))
        return self._task

    def has_pending_data(self) -> bool:
        """Return whether received data will still be read; after the last response none will."""
        return not self._shutting_down and self._connection.has_pending_data()

    def evict(self) -> None:
        """Drop the request, and end soon."""
        if self._http is not None:
            self._http.discard()
        if self._task is not None:
            self._task.cancel()

    def _end(self, slot: ConnectionSlot) -> None:
        self._shared.limiter.release(slot)
        self._connection.close()
        if self._http is not None:
            self._http.discard()
        # A cancelled task refers to its error, the error to its frames, and the frames to this session. Without this
        # line the cycle stays until the garbage collector runs, which comes too late under the load of some hundred
        # clients.
        self._task = self._http = None

    async def _run(self, slot: ConnectionSlot) -> None:
        http = self._http = HttpConnection(
            self._connection, partial(self._shared.limiter.reserve_bytes, slot), partial(self._shared.large.enter, slot)
        )
        try:
            refusal = None
            try:
                await self._serve(http, slot)
            except BadRequest as error:
                refusal = error.response
                self._shared.log.warning("request refused", peer=self._peer, why=str(error))
            if refusal is not None:
                # Release the input before the response is sent.
                http.discard()
                self._shared.limiter.release_bytes(slot)
                await self._respond_last(http, slot, refusal)
        except ssl.SSLError as error:
            self._shared.log.warning("TLS handshake failed", peer=self._peer, why=str(error))
        except TimeoutError:
            self._shared.log.warning("session timed out", peer=self._peer)
        except OSError:
            pass  # the client disconnected
        except Exception:  # noqa: BLE001 -- a defect in one session ends only that session
            _LOG.exception("session failed", extra=fields(peer=self._peer))

    async def _serve(self, http: HttpConnection, slot: ConnectionSlot) -> None:
        async with asyncio.timeout(READ_SECONDS):
            await self._connection.handshake()
            request = await http.read()
        while True:
            response = await self._shared.respond(request, slot)
            request.take()  # drop an unread body: its bytes are released below
            slot.enter(SessionStage.ACTIVE, _now())
            self._shared.limiter.release_bytes(slot)
            if http.is_last or self._shared.closing.is_set():
                await self._respond_last(http, slot, response)
                return
            async with asyncio.timeout(WRITE_SECONDS):
                await http.write(response, is_last=False)
            slot.enter(SessionStage.IDLE, _now())
            if self._shared.closing.is_set() or not await self._wait_for_request(http):
                return
            slot.enter(SessionStage.ACTIVE, _now())
            async with asyncio.timeout(READ_SECONDS):
                request = await http.read()

    async def _wait_for_request(self, http: HttpConnection) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                return await http.wait_for_request()
        return False

    async def _respond_last(self, http: HttpConnection, slot: ConnectionSlot, response: Page) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await http.write(response, is_last=True)
        self._shutting_down = True
        slot.enter(SessionStage.IDLE, _now())
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_SECONDS):
                await self._connection.shut_down()


def _now() -> float:
    return asyncio.get_running_loop().time()
