"""The webhook's HTTPS server: one event loop reads whole requests, a pool of threads reviews them.

With failurePolicy Fail, every response but 200 fails a user's write. So a request that has not begun never delays
another one, and the server answers a request that it must turn away at once, with 503 and Retry-After: the API server
then retries within its ten seconds, while it gives up on a connection that just ends.
"""

import asyncio
import logging
import queue
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

from gkm.hoststate.logs import fields
from gkm.probes.messages import Page, error_page
from gkm.probes.server import listen

from gkm_operator.admission.https.connection_limits import (
    LIMIT,
    ConnectionLimiter,
    ConnectionSlot,
    LargeBodies,
    SessionStage,
    ThrottledLog,
)
from gkm_operator.admission.https.session import Connection, HttpRequest, HttpSession, SessionContext
from gkm_operator.admission.review import ReviewBusy, ReviewInvalid

_LOG = logging.getLogger(__name__)

THREADS = 72
"""Number of review threads: more than can wait for registries (validator.WAITING), so other requests find a thread."""

WAITING = 128
"""Limit of complete requests that wait for a thread."""

CONNECTIONS = 256
"""More than are in review or wait for a thread, so the limiter can always evict one; some 50 KiB each. A kube-apiserver
keeps 25 idle ones (client-go, transport/cache.go)."""

MAX_HELD_BYTES = 32 << 20
"""Limit of bytes of all requests that are being read or wait for a thread."""

REVIEW_SECONDS = 9.0
"""Our webhooks have timeoutSeconds 10: the API server ignores a later answer. A review that has not begun by then is
dropped."""

RECEIVE_BYTES = 32 << 10
"""Size in bytes of the receive buffer of each socket; the kernel doubles it (socket(7))."""

CLOSE_SECONDS = 5.0

HEARTBEAT_SECONDS = 1.0
HUNG_SECONDS = 10.0
"""Seconds without a heartbeat after which the event loop is considered hung. The API server waits for 10 seconds."""

_BACKLOG = 512
_FULL_SECONDS = 0.1

_OK = Page(b"ok\n")

T = TypeVar("T")

_END_SECONDS = 1.0


Reviewer = Callable[[Callable[[], bytes | bytearray], Callable[[], object]], bytes]
"""Called as `reviewer(take, decoded)` in several threads; returns the AdmissionReview with the response to a request.

It ends within the webhook's timeout. `take` returns the body, and the server then drops its reference. It calls
`decoded` once the body is not in memory any more: the server then frees the bytes reserved for it.

Raises:
    ReviewInvalid: the body is not an AdmissionReview for this path; the API server gets 400.
    ReviewBusy: too much is under review; the API server gets 503, and sends the request again.
"""


class AdmissionServer:
    """The HTTPS server of the webhook, with /healthz and /readyz. /readyz reports whether `ready` is set."""

    def __init__(
        self, reviewers: Mapping[str, Reviewer], address: tuple[str, int], certificate: Path, key: Path
    ) -> None:
        """Read the certificate.

        Raises:
            OSError: a file cannot be read, or (ssl.SSLError) certificate and key do not match.
        """
        self._reviewers = reviewers
        self._address = address
        self._certificate = ServerCertificate(certificate, key)
        self.ready = Event()
        self._limiter = ConnectionLimiter(CONNECTIONS, MAX_HELD_BYTES, self._leave_large)
        self._large = LargeBodies(LIMIT, self._limiter.evict)
        self._pool = ThreadPool(THREADS, WAITING)
        self._throttled_log = ThrottledLog(_LOG)
        self._closing = asyncio.Event()
        self._shared = SessionContext(self._limiter, self._large, self._respond, self._closing, self._throttled_log)
        self._sessions: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self.port = 0
        """The listening port; 0 before `start`."""
        self._last_heartbeat = 0.0

    @property
    def alive(self) -> bool:
        """Return whether the server's event loop has run within the last HUNG_SECONDS. Thread-safe; does not wait."""
        return time.monotonic() - self._last_heartbeat < HUNG_SECONDS

    def _leave_large(self, slot: ConnectionSlot) -> None:
        # The limiter and the large bodies refer to each other, and the limiter is made first.
        self._large.leave(slot)

    def start(self) -> None:
        """Listen on the address, and serve in threads. The caller sets `ready` when requests can be answered.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
        """
        listener = listen(self._address, _BACKLOG)
        listener.settimeout(0.0)
        self.port = int(listener.getsockname()[1])
        self._pool.start()
        self._loop = asyncio.new_event_loop()
        self._beat(self._loop)
        self._thread = Thread(target=self._run, args=(self._loop, listener), name="serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server within a few seconds; requests in review get their response. Idempotent."""
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
        self._limiter.evict_idle()
        if self._sessions:
            await asyncio.wait(self._sessions, timeout=CLOSE_SECONDS)
        for session in self._sessions:
            session.cancel()
        if self._sessions:
            await asyncio.wait(self._sessions)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, peer = await loop.sock_accept(listener)
            except OSError as error:
                # Usually the process has no free descriptor: the client stays in the backlog until another connection
                # ends.
                self._throttled_log.warning("accept of an HTTPS connection failed, tried again", why=str(error))
                await asyncio.sleep(_FULL_SECONDS)
                continue
            try:
                self._start_session(connection, str(peer[0]))
            except Exception:  # noqa: BLE001 -- a defect in one connection must not end the accept loop
                _LOG.exception("HTTPS connection not accepted")
                connection.close()
            await asyncio.sleep(0)  # let open sessions run between new connections

    def _start_session(self, connection: socket.socket, peer: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Unread input is memory of this container too; by default the kernel takes up to 6 MiB for each connection.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            client = Connection(connection, self._certificate.context())
        except OSError:
            connection.close()
            return
        session = HttpSession(client, peer, self._shared).start()
        if session is not None:
            self._sessions.add(session)
            session.add_done_callback(self._sessions.discard)

    async def _respond(self, http_request: HttpRequest, slot: ConnectionSlot) -> Page:
        if (reviewer := self._reviewers.get(http_request.path)) is not None:
            return await self._review(reviewer, http_request, slot)
        if http_request.path not in {"/healthz", "/readyz"}:
            paths = ", ".join(self._reviewers)
            return error_page(HTTPStatus.NOT_FOUND, f"the paths are {paths}, /healthz and /readyz")
        if http_request.method not in {"GET", "HEAD"}:
            return error_page(HTTPStatus.METHOD_NOT_ALLOWED, "use GET")
        if http_request.path == "/readyz" and not self.ready.is_set():
            return error_page(HTTPStatus.SERVICE_UNAVAILABLE, "not ready: the server starts or stops")
        return _OK

    async def _review(self, reviewer: Reviewer, http_request: HttpRequest, slot: ConnectionSlot) -> Page:
        if http_request.method != "POST":
            return error_page(HTTPStatus.METHOD_NOT_ALLOWED, "use POST with an AdmissionReview")
        loop = asyncio.get_running_loop()
        decoded = partial(loop.call_soon_threadsafe, self._limiter.release_bytes, slot)
        slot.enter(SessionStage.IN_REVIEW, loop.time())
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                response = await asyncio.wrap_future(
                    self._pool.run(lambda: _review_in_thread(reviewer, http_request, decoded))
                )
        except (PoolFull, TimeoutError) as error:
            reason = str(error) or f"not reviewed within {REVIEW_SECONDS:g} s"
            self._throttled_log.warning("admission review failed", why=reason)
            return error_page(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        except Exception:  # noqa: BLE001 -- a defect in one review fails only that request
            _LOG.exception("admission review failed", extra=fields(path=http_request.path))
            return error_page(HTTPStatus.INTERNAL_SERVER_ERROR, "the review of this request failed; see the log")
        if response.status is not HTTPStatus.OK:
            event = (
                "admission review malformed" if response.status is HTTPStatus.BAD_REQUEST else "admission review failed"
            )
            self._throttled_log.warning(event, why=response.body.decode().strip())
        return response


def _review_in_thread(reviewer: Reviewer, http_request: HttpRequest, decoded: Callable[[], object]) -> Page:
    try:
        return Page(reviewer(http_request.take, decoded), content_type="application/json")
    # Not raised to the event loop: their tracebacks would keep the body in memory as long as the future.
    except ReviewInvalid as error:
        return error_page(HTTPStatus.BAD_REQUEST, str(error))
    except ReviewBusy as error:
        return error_page(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    finally:
        decoded()


class ServerCertificate:
    """The webhook's TLS certificate and key, loaded again when the PEM files change.

    Changed files are loaded with the next connection. While the two files do not match each other, the server keeps
    using the previous pair.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files.

        Raises:
            OSError: a file cannot be read, or (ssl.SSLError) certificate and key do not match.
        """
        self._files = (certificate, key)
        self._throttled_log = ThrottledLog(_LOG)
        self._stamp = self._read_stamp()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection.

        A change makes a new context: loading a mismatched pair into the old one would leave half of the pair there.
        """
        stamp = self._read_stamp()
        if stamp != self._stamp:
            try:
                self._context, self._stamp = self._load(), stamp
            except OSError as error:
                # Either a rotation is in progress, or the files are wrong: then an administrator must see it before the
                # old pair expires.
                why = error.strerror or str(error)
                self._throttled_log.warning(
                    "webhook certificate not loaded, the former one stays in use", file=str(self._files[0]), why=why
                )
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # handshakes cost most: one for each connection
        # An encrypted key must fail; without a password callback OpenSSL would prompt on a terminal.
        context.load_cert_chain(*self._files, password=str)
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()


class PoolFull(Exception):
    """Too many reviews wait for a thread of the pool."""


class ThreadPool:
    """Runs functions in `threads` threads; at most `waiting` more wait.

    The threads are daemons: threads of an executor would delay the end of the process after SIGTERM.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._tasks: queue.Queue[Callable[[], None] | None] = queue.Queue(waiting)
        self._threads = [Thread(target=self._work, name=f"judge-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        """Start the threads of the pool."""
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` in a thread and return a future for its result; cancelling the future drops a waiting task.

        Raises:
            PoolFull: the queue is full.
        """
        future: Future[T] = Future()
        try:
            # Not a lambda: its frame would refer to the future, and the frames of an error in the future refer to that
            # frame.
            self._tasks.put_nowait(partial(_run, work, future))
        except queue.Full as error:
            raise PoolFull("too many requests wait for a review") from error
        return future

    def close(self) -> None:
        """Stop the threads and drop waiting tasks. Waits a moment, but not for a task that hangs. Idempotent."""
        with suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()
        with suppress(queue.Full):
            self._tasks.put_nowait(None)
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
            del task  # release its memory while the thread waits for the next task
        with suppress(queue.Full):
            self._tasks.put_nowait(None)  # wakes the next thread


def _run(work: Callable[[], T], future: Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = work()
    except BaseException as error:  # noqa: BLE001 -- raised again by the future
        future.set_exception(error)
    else:
        future.set_result(value)
    finally:
        # The error refers to this frame, and the future to the error: without these names there is no cycle.
        del work, future
