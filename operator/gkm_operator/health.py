"""Liveness and readiness over plain HTTP, for a process that serves nothing else."""

from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any

from cheroot.wsgi import Server

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]
_THREADS = 2


class HealthServer:
    """Serves /healthz (this process answers) and /readyz (`ready` says yes) until `close`."""

    def __init__(self, address: tuple[str, int], ready: Callable[[], bool]) -> None:
        self._ready = ready
        self._server = Server(address, self._application, numthreads=_THREADS, max=_THREADS, shutdown_timeout=1)
        self._server.max_request_body_size = 1
        self._server.max_request_header_size = 16 << 10
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
        self._thread = Thread(target=self._server.serve, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End within a few seconds."""
        self._server.stop()
        if self._thread:
            self._thread.join(2)

    def _application(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        good = path == "/healthz" or (path == "/readyz" and self._ready())
        status = "200 OK" if good else "503 Service Unavailable" if path == "/readyz" else "404 Not Found"
        body = b"ok\n" if good else b"not ready\n" if path == "/readyz" else b"there is /healthz and /readyz\n"
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
        return [body]
