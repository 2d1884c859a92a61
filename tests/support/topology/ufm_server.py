"""UFM's REST API for ports over real HTTPS on this machine, with the faults of servers and networks."""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.cluster.certificates import Authority
from support.host.waiting import scaled


@dataclass
class UfmServer:
    """`rows` are the ports. `paging`: `object` (pages in `data`), `list` (pages are lists), or `none`.

    `fault` is one of: `status:NUMBER`, `redirect`, `large`, `drip`, `silent`, `breaks-off`, `gzip`, `garbage`.
    """

    rows: list[dict[str, Any]]
    accepted: tuple[str, str]
    """The root of the API and the value of Authorization."""
    paging: str = "object"
    most: int = 1 << 20
    """Limit of rows in a page, whatever is requested."""
    total: int | None = None
    """The number of all rows that it states, if it is another one."""
    fault: str = ""
    url: str = ""
    ca_file: Path = Path()
    requests: list[str] = field(default_factory=list)
    stopping: Event = field(default_factory=Event)

    @contextmanager
    def start(self, directory: Path, names: tuple[str, ...] = ("127.0.0.1",)) -> Iterator["UfmServer"]:
        authority = Authority.create()
        self.ca_file = directory / "ufm-ca.crt"
        self.ca_file.write_bytes(authority.pem)
        certificate, key = authority.server(list(names)).write(directory, "ufm")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"ufm": self}))
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def body(self, query: dict[str, list[str]]) -> bytes:
        if self.paging == "none":
            return json.dumps(self.rows).encode()
        number, size = int(query["page_number"][0]), min(int(query["rpp"][0]), self.most)
        page = self.rows[(number - 1) * size : number * size]
        whole = {"total_resources": len(self.rows) if self.total is None else self.total, "data": page}
        return json.dumps(page if self.paging == "list" else whole).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ufm: UfmServer

    def do_GET(self) -> None:
        with suppress(OSError):
            self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:  # noqa: C901 -- a list of faults
        ufm = self.ufm
        ufm.requests.append(self.path)
        path = urlsplit(self.path)
        root, authorization = ufm.accepted
        fault, _, argument = ufm.fault.partition(":")
        if fault == "status":
            self._send(int(argument), b"serial MT1234X00001")
        elif fault == "redirect":
            self._send(302, b"", Location="https://127.0.0.1:1/elsewhere")
        elif self.headers.get("Authorization") != authorization or path.path != f"{root}/resources/ports":
            self._send(401, b"serial MT1234X00001")
        elif fault == "large":
            self._head(200, {"Content-Type": "application/json", "Connection": "close"})
            while not ufm.stopping.is_set():
                self.wfile.write(b" " * (1 << 20))
        elif fault == "drip":
            self._head(200, {"Content-Length": "1000000"})
            while not ufm.stopping.is_set():
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.05)
        elif fault == "silent":
            ufm.stopping.wait(scaled(60))
        elif fault == "breaks-off":
            self._head(200, {"Content-Length": "1000000", "Connection": "close"})
            self.wfile.write(b"[")
            self.close_connection = True
        elif fault == "gzip":
            self._send(200, b"x", **{"Content-Encoding": "gzip"})
        elif fault == "garbage":
            self._send(200, b'{"data": "serial MT1234X00001"}')
        else:
            self._send(200, ufm.body(parse_qs(path.query)))

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self._head(status, {"Content-Length": str(len(body)), **headers})
        self.wfile.write(body)
