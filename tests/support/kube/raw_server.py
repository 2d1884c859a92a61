"""An API server as a test writes it: it sends given bytes, and closes its connections on command."""

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import HeaderParser
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

from gkm.kube.client import READ_SECONDS, BeforeWrite, HttpApi
from gkm.kube.credentials import ApiCredentials
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from support.host.waiting import scaled

MAX_HEAD = 16 << 10


@dataclass
class Answer:
    """Bytes, and then: `reset`, `end` (a clean FIN), or `silence` until the test is over."""

    data: bytes
    then: str = "end"


@dataclass
class RawServer:
    """One connection after another, each answered once; `answer` is asked with the head of the request."""

    answer: Callable[[str], Answer]
    port: int = 0
    heads: list[str] = field(default_factory=list)
    _stopping: Event = field(default_factory=Event)

    @classmethod
    @contextmanager
    def start(cls, answer: Callable[[str], Answer]) -> Iterator["RawServer"]:
        server = cls(answer)
        with server.running():
            yield server

    @contextmanager
    def running(self) -> Iterator[None]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            listener.settimeout(0.1)
            thread = Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._stopping.set()
                thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, before_write: BeforeWrite = lambda: None) -> HttpApi:
        """Return the real client of it."""
        configuration = Configuration(host=self.url)
        return HttpApi(ApiCredentials(lambda: ApiClient(configuration)), lambda *_: None, READ_SECONDS, before_write)

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                client, _ = listener.accept()
                Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            client.settimeout(20)
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
                if not (piece := client.recv(MAX_HEAD)):
                    return
                head += piece
            self.heads.append(head.decode())
            answer = self.answer(self.heads[-1])
            client.sendall(answer.data)
            if answer.then == "silence":
                self._stopping.wait(scaled(60))
            elif answer.then == "reset":
                # What was sent must have arrived: a reset throws away what its receiver has not read yet.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def query_of(head: str) -> dict[str, str]:
    """Return the parameters of a request."""
    return {name: values[0] for name, values in parse_qs(urlsplit(head.split(" ", 2)[1]).query).items()}


def header_of(head: str, name: str) -> str:
    """Return a header of a request; empty without it."""
    return HeaderParser().parsestr(head.partition("\r\n")[2]).get(name, "")


def response(status: str, body: bytes = b"", **headers: str) -> Answer:
    """Return a whole answer; `_` stands for `-` in names of headers."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{more}\r\n"
    return Answer(head.encode("latin-1") + body)


UNAUTHORIZED = response(
    "401 Unauthorized",
    json.dumps({"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized", "code": 401}).encode(),
)
"""The answer to credentials that the API server does not accept."""
