"""The webhook's HTTPS server: bodies bounded, one thread a request, nothing decided here."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

from cheroot.wsgi import Server
from gkm.hoststate.logs import fields

from gkm_operator.admission.judge import Judge
from gkm_operator.admission.review import ReviewInvalid, encode, parse
from gkm_operator.admission.tls import LateHandshake

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 8 << 20
"""An AdmissionReview holds the object twice, and etcd takes none above 1.5 MB; managedFields included this is ample."""

MAX_HEADER_BYTES = 64 << 10
THREADS = 24
"""More than the checks that may run at once (judge.THREADS): requests that need none, and probes, find a thread."""

IDLE_SECONDS = 10
"""How long a client may be silent in the middle of something; the API server never is."""

_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


class AdmissionServer:
    """Serves /validate, /healthz and /readyz over TLS until `close`."""

    def __init__(self, judge: Judge, address: tuple[str, int], certificate: Path, key: Path) -> None:
        self._judge = judge
        self.ready = Event()
        self._server = _Server(
            address,
            self._application,
            numthreads=THREADS,
            max=THREADS,
            server_name="gkm-operator",
            request_queue_size=64,
            timeout=IDLE_SECONDS,
            shutdown_timeout=2,
        )
        self._server.max_request_body_size = MAX_BODY_BYTES
        self._server.max_request_header_size = MAX_HEADER_BYTES
        self._server.ssl_adapter = LateHandshake(certificate, key)
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        return int(self._server.bind_addr[1])

    def start(self) -> None:
        """Listen, and serve in a thread.

        Raises:
            OSError: the address is taken, or not ours.
        """
        self._server.prepare()
        self._thread = Thread(target=self._server.serve, name="serve", daemon=True)
        self._thread.start()
        self.ready.set()

    def close(self) -> None:
        """End within a few seconds; requests under way get their answer."""
        self.ready.clear()
        self._server.stop()
        if self._thread:
            self._thread.join(5)

    def _application(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        status, kind, body = self._answer(environ)
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, environ: Environ) -> tuple[str, str, bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/healthz":
            return "200 OK", _TEXT, b"ok\n"
        if path == "/readyz":
            ready = self.ready.is_set()
            return ("200 OK", _TEXT, b"ok\n") if ready else ("503 Service Unavailable", _TEXT, b"ending\n")
        if path != "/validate":
            return "404 Not Found", _TEXT, b"there is /validate, /healthz and /readyz\n"
        if method != "POST":
            return "405 Method Not Allowed", _TEXT, b"POST an AdmissionReview\n"
        try:
            request = parse(_body(environ))
        except ReviewInvalid as error:
            _LOG.warning("bad request", extra=fields(peer=environ.get("REMOTE_ADDR"), why=str(error)))
            return "400 Bad Request", _TEXT, f"{error}\n".encode()
        return "200 OK", _JSON, encode(request.uid, self._judge.answer(request))


def _body(environ: Environ) -> bytes:
    data = cast("bytes", environ["wsgi.input"].read(MAX_BODY_BYTES + 1))
    if len(data) > MAX_BODY_BYTES:
        raise ReviewInvalid(f"longer than {MAX_BODY_BYTES} bytes")
    return data


class _Server(Server):
    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:  # noqa: FBT001, FBT002 -- cheroot's
        _LOG.log(level, "connection", extra=fields(why=msg.strip()), exc_info=traceback)
