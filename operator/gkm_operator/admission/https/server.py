"""The webhook's HTTPS server: one event loop reads whole requests, a pool of threads judges; nothing is decided here.

Behind failurePolicy Fail every answer but 200 is a write of a user that fails. So a request that is not even begun is
never the reason that another is not read, and what must be turned away is told so at once, with 503 and Retry-After:
the API server then asks again within its ten seconds, while it gives up on a connection that just ends.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from gkm.hoststate.logs import fields
from gkm.probes.server import listen

from gkm_operator.admission.https.certificate import ServerCertificate
from gkm_operator.admission.https.connection import Connection
from gkm_operator.admission.https.connection_limits import ConnectionLimiter, ConnectionSlot, SessionStage
from gkm_operator.admission.https.http1 import JSON, HttpRequest, HttpResponse, error_response
from gkm_operator.admission.https.large_bodies import LIMIT, LargeBodies
from gkm_operator.admission.https.session import HttpSession, SessionContext
from gkm_operator.admission.https.thread_pool import PoolFull, ThreadPool
from gkm_operator.admission.https.throttled_log import ThrottledLog
from gkm_operator.admission.review import ReviewInvalid, ReviewRequest, ReviewResponse, encode, parse

_LOG = logging.getLogger(__name__)

THREADS = 72
"""More than may wait for a registry at once (judge.WAITING): requests that wait for none find a thread."""

WAITING = 128
"""How many whole requests wait for a thread. Those that wait for no registry take a millisecond each."""

CONNECTIONS = 256
"""More than are judged or wait for it, so there is always one that can give way; some 50 KiB each. A kube-apiserver
keeps 25 idle ones (client-go, transport/cache.go)."""

MAX_HELD_BYTES = 32 << 20
"""All requests together that are read, or wait to be judged."""

JUDGED_SECONDS = 9.0
"""Our webhooks have timeoutSeconds 10: nobody waits for a later answer, and what has not begun by then never does."""

RECEIVE_BYTES = 32 << 10
"""Of each socket; the kernel doubles it for its own bookkeeping (socket(7))."""

CLOSE_SECONDS = 5.0

HEARTBEAT_SECONDS = 1.0
HUNG_SECONDS = 10.0
"""The event loop counts as hung when it has not run its heartbeat for this long. The API server waits for 10 seconds,
and no step of the loop takes longer than some milliseconds."""

_BACKLOG = 512
_FULL_SECONDS = 0.1

_OK = HttpResponse(HTTPStatus.OK, b"ok\n")


class Validator(Protocol):
    """Answers requests, in several threads at once, within the webhook's time."""

    def review(self, request: ReviewRequest) -> ReviewResponse:
        """Return the answer."""


class AdmissionServer:
    """Serves /validate, /healthz and /readyz over TLS until `close`. /readyz says whether `ready` is set."""

    def __init__(self, judge: Validator, address: tuple[str, int], certificate: Path, key: Path) -> None:
        """Read the certificate.

        Raises:
            OSError: it cannot be read, or (ssl.SSLError) is no pair with the key.
        """
        self._judge = judge
        self._address = address
        self._certificate = ServerCertificate(certificate, key)
        self.ready = Event()
        self._places = ConnectionLimiter(CONNECTIONS, MAX_HELD_BYTES, self._let_go)
        self._large = LargeBodies(LIMIT, self._places.evict)
        self._pool = ThreadPool(THREADS, WAITING)
        self._seldom = ThrottledLog(_LOG)
        self._closing = asyncio.Event()
        self._host = SessionContext(self._places, self._large, self._respond, self._closing, self._seldom)
        self._conversations: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._port = 0
        self._last_heartbeat = 0.0

    @property
    def port(self) -> int:
        """Return the port that is listened on; 0 before `start`."""
        return self._port

    @property
    def alive(self) -> bool:
        """Return whether the event loop has run within the last HUNG_SECONDS. Thread-safe; does not wait."""
        return time.monotonic() - self._last_heartbeat < HUNG_SECONDS

    def start(self) -> None:
        """Listen, and serve in threads. `ready` is the caller's to set.

        Raises:
            OSError: the address is taken, or not ours.
        """
        listener = listen(self._address, _BACKLOG)
        listener.settimeout(0.0)
        self._port = int(listener.getsockname()[1])
        self._pool.start()
        self._loop = asyncio.new_event_loop()
        self._beat(self._loop)
        self._thread = Thread(target=self._run, args=(self._loop, listener), name="serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End within a few seconds; requests under way get their answer. Idempotent."""
        self.ready.clear()
        if self._loop is None or self._thread is None:
            return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(2 * CLOSE_SECONDS)
        self._pool.close()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last_heartbeat = time.monotonic()
        loop.call_later(HEARTBEAT_SECONDS, self._beat, loop)

    def _run(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        try:
            loop.run_until_complete(self._serve(listener))
        finally:
            loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        with listener:
            accepting = asyncio.create_task(self._accept(listener))
            await self._closing.wait()
            accepting.cancel()
            await asyncio.wait((accepting,))
        self._places.evict_idle()
        if self._conversations:
            await asyncio.wait(self._conversations, timeout=CLOSE_SECONDS)
        for conversation in self._conversations:
            conversation.cancel()
        if self._conversations:
            await asyncio.wait(self._conversations)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, mostly: the client stays in the backlog, and there is room when others have ended.
                self._seldom.warning("no connection can be taken", why=str(error))
                await asyncio.sleep(_FULL_SECONDS)
                continue
            try:
                self._start_session(connection, str(peer[0]))
            except Exception:  # noqa: BLE001 -- a defect in one connection costs that one: nobody else takes the next
                _LOG.exception("connection not taken")
                connection.close()
            await asyncio.sleep(0)  # those who are in take turns with those who come

    def _start_session(self, connection: socket.socket, peer: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # What a client sends before it is read is memory of ours too; the kernel would take up to 6 MiB for each.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            client = Connection(connection, self._certificate.context())
        except OSError:
            connection.close()
            return
        conversation = HttpSession(client, peer, self._host).start()
        if conversation is not None:
            self._conversations.add(conversation)
            conversation.add_done_callback(self._conversations.discard)

    def _let_go(self, place: ConnectionSlot) -> None:
        self._large.leave(place)

    async def _respond(self, asked: HttpRequest, place: ConnectionSlot) -> HttpResponse:
        if asked.path == "/validate":
            return await self._reviewed(asked, place)
        if asked.path not in {"/healthz", "/readyz"}:
            return error_response(HTTPStatus.NOT_FOUND, "there is /validate, /healthz and /readyz")
        if asked.method not in {"GET", "HEAD"}:
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED, "GET this page")
        if asked.path == "/readyz" and not self.ready.is_set():
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: starting, or ending")
        return _OK

    async def _reviewed(self, asked: HttpRequest, place: ConnectionSlot) -> HttpResponse:
        if asked.method != "POST":
            return error_response(HTTPStatus.METHOD_NOT_ALLOWED, "POST an AdmissionReview")
        loop = asyncio.get_running_loop()

        def parsed() -> None:
            loop.call_soon_threadsafe(self._places.release_bytes, place)

        place.enter(SessionStage.JUDGED, loop.time())
        try:
            async with asyncio.timeout(JUDGED_SECONDS):
                answer = await asyncio.wrap_future(self._pool.run(lambda: self._review_in_thread(asked, parsed)))
        except (PoolFull, TimeoutError) as error:
            why = str(error) or f"not judged within {JUDGED_SECONDS:g} s"
            self._seldom.warning("request not judged", why=why)
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, why)
        except Exception:  # noqa: BLE001 -- a defect in judging one request costs that request
            _LOG.exception("request not judged", extra=fields(path=asked.path))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, "this request cannot be judged; the log says why")
        if answer.status is HTTPStatus.BAD_REQUEST:
            self._seldom.warning("bad request", why=answer.body.decode().strip())
        return answer

    def _review_in_thread(self, asked: HttpRequest, parsed: Callable[[], None]) -> HttpResponse:
        try:
            request = parse(asked.take())
        except ReviewInvalid as error:
            # Not raised to the event loop: its traceback would hold the body for as long as the future is there.
            return error_response(HTTPStatus.BAD_REQUEST, str(error))
        finally:
            parsed()
        return HttpResponse(HTTPStatus.OK, encode(request.uid, self._judge.review(request)), JSON)
