"""The wire side of the testbed's registry: reading requests, sending (spoiled) answers. Routes are registry_routes."""

import fcntl
import socket
import struct
import sys
import termios
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from support.registry.faults import Answer, Fault

PIECE = 1 << 16


@dataclass(frozen=True)
class Request:
    """One request as it came; header names are lower-case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def plain_path(self) -> str:
        return self.path.partition("?")[0]

    @property
    def query(self) -> str:
        return self.path.partition("?")[2]


class Service(Protocol):
    """What answers; one is behind every handler."""

    stopping: threading.Event

    def answer(self, request: Request) -> Answer: ...

    def spoil(self, request: Request) -> Fault | None: ...


class Handler(BaseHTTPRequestHandler):
    """Reads one request, asks the service, sends what it says or what a fault makes of it."""

    protocol_version = "HTTP/1.1"
    service: Service
    disable_nagle_algorithm = True
    timeout = 60

    def handle_any(self) -> None:
        request = Request(
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            self._body(),
        )
        if self.service.stopping.is_set():
            # A connection kept alive must not outlive the registry.
            self.close_connection = True
            return
        answer = self.service.answer(request)
        fault = self.service.spoil(request)
        try:
            self._send(answer, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 -- http.server calls them so

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 -- http.server calls it so
        """Say nothing: the requests are recorded."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return b"".join(pieces)

    def _send(self, answer: Answer, fault: Fault | None) -> None:
        headers = dict(answer.headers)
        length = len(answer.body)
        if fault:
            answer = fault.change(answer)
            length, headers = len(answer.body), dict(answer.headers)
            if fault.stall_after == -1:
                self.service.stopping.wait(fault.stall_seconds)
        headers.setdefault("Content-Length", str(length))
        if fault and not fault.announce_length:
            del headers["Content-Length"]
            headers["Connection"] = "close"
            self.close_connection = True
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault and fault.drip_headers:
            self._drip_headers(*fault.drip_headers)
        else:
            self.end_headers()
        if headers.get("Content-Length", str(length)) != str(length):
            self.close_connection = True
        if self.command != "HEAD":
            self._send_body(answer.body, fault)

    def _drip_headers(self, piece: int, pause: float) -> None:
        # http.server gathers the headers here until end_headers sends them.
        data = b"".join(vars(self)["_headers_buffer"]) + b"\r\n"
        vars(self)["_headers_buffer"] = []
        for start in range(0, len(data), piece):
            if self.service.stopping.wait(pause):
                break
            self.wfile.write(data[start : start + piece])

    def _send_body(self, body: bytes, fault: Fault | None) -> None:
        if fault and fault.cut_after is not None:
            body = body[: fault.cut_after]
            self.close_connection = True
        piece, pause = (fault.drip if fault and fault.drip else None) or (PIECE, 0.0)
        stall_at = fault.stall_after if fault and fault.stall_after is not None and fault.stall_after >= 0 else None
        view = memoryview(body)
        if stall_at is not None and fault:
            self.wfile.write(view[:stall_at])
            self.wfile.flush()
            self.service.stopping.wait(fault.stall_seconds)
            view = view[stall_at:]
        for start in range(0, len(view), piece):
            if pause and self.service.stopping.wait(pause):
                self.close_connection = True
                return
            self.wfile.write(view[start : start + piece])
        self.wfile.flush()
        if fault and fault.reset:
            # Closed with the linger time 0, which is a reset (socket(7), SO_LINGER); it drops what is not sent yet.
            while int.from_bytes(fcntl.ioctl(self.connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder):
                if self.service.stopping.wait(0.005):
                    break
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


class Server(ThreadingHTTPServer):
    """A thread a connection; the end waits for none of them."""

    daemon_threads = True
    # A stalled answer must not hold up the end of a test.
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up, or do not trust our certificate, are what tests are about; defects are printed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
