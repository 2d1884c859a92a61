"""A TCP relay before any server: it cuts what clients send, reads slowly, speaks TLS for it, or is an HTTP proxy.

`with Relay.start(target) as relay:`; real partners misbehave on a network, not by themselves.
"""

import re
import select
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 16 << 10
ENDED = b"HTTP/1.1 200 Connection established\r\n\r\n"
MAX_HEAD = 64 << 10


@dataclass
class Relay:
    """A relay on a free loopback port."""

    target: str
    """host:port that everything goes to, whatever a client of a proxy asks for."""
    host: str = ""
    tls: ssl.SSLContext | None = None
    proxy: bool = False
    """Read a request for an HTTP proxy first: CONNECT, or any other with an absolute address."""
    cuts: list[int] = field(default_factory=list)
    """For the next connections: after how many bytes from the client they break."""
    pause: float = 0.0
    """Wait so many seconds once, after the first piece of a body from the client has come."""
    heads: list[str] = field(default_factory=list)
    """What clients of a proxy asked for, with their headers."""
    patience: float = 20.0
    """How many seconds nothing may pass before a connection ends; watches want more."""
    answers: list[int] = field(default_factory=list)
    """For the next connections: after how many bytes from the server they break."""
    _open: set[tuple[socket.socket, socket.socket]] = field(default_factory=set)
    _stopping: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def start(cls, target: str, *, tls: ssl.SSLContext | None = None, proxy: bool = False) -> Iterator["Relay"]:
        relay = cls(target, tls=tls, proxy=proxy)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            relay.host = f"127.0.0.1:{listener.getsockname()[1]}"
            listener.settimeout(0.1)
            thread = threading.Thread(target=relay._accept, args=(listener,), name="relay", daemon=True)
            thread.start()
            try:
                yield relay
            finally:
                relay._stopping.set()
                thread.join()

    def break_all(self, *, reset: bool = False) -> int:
        """Break every connection that is open, by a clean end or by a reset; return how many there were."""
        pairs = list(self._open)
        for client, server in pairs:
            if reset:
                with suppress(OSError):
                    # Closing throws away what was not sent, and says RST instead of FIN.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.shutdown(socket.SHUT_RD)
                    server.shutdown(socket.SHUT_RDWR)
            else:
                _end(client, server)
        return len(pairs)

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self.target.rpartition(":")
        with suppress(OSError), client, socket.create_connection((host, int(port)), 10) as server:
            client.settimeout(self.patience)
            server.settimeout(self.patience)
            if self.proxy:
                server.sendall(self._head_for_proxy(client))
            if self.tls:
                client = self.tls.wrap_socket(client, server_side=True)
            pair = (client, server)
            self._open.add(pair)
            try:
                self._pass_both_ways(client, server)
            finally:
                self._open.discard(pair)
                _end(client, server)

    def _head_for_proxy(self, client: socket.socket) -> bytes:
        """Return what the server is to see of a client's first request; a tunnel hides it all."""
        head = b""
        while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
            head += client.recv(1)
        self.heads.append(head.decode())
        if head.startswith(b"CONNECT "):
            client.sendall(ENDED)
            return b""
        return re.sub(rb"^(\S+) https?://[^/ ]+", rb"\1 ", head, count=1)

    def _pass_both_ways(self, client: socket.socket, server: socket.socket) -> None:
        """Pass what comes until a side ends or is cut: in one thread, because an SSLSocket is not safe in two."""
        left = {client: _next(self.cuts), server: _next(self.answers)}
        passed = 0
        while all(left.values()):
            for source in self._readable(client, server):
                data = source.recv(min(PIECE, left[source]))
                if not data:
                    return
                (server if source is client else client).sendall(data)
                left[source] -= len(data)
                passed += len(data) if source is client else 0
            if self.pause and passed > PIECE:
                self._stopping.wait(self.pause)
                self.pause = 0.0

    def _readable(self, client: socket.socket, server: socket.socket) -> list[socket.socket]:
        if isinstance(client, ssl.SSLSocket) and client.pending():
            return [client]
        readable, _, _ = select.select([client, server], [], [], self.patience)
        if not readable:
            raise TimeoutError
        return readable


def _next(cuts: list[int]) -> int:
    return cuts.pop(0) if cuts else sys.maxsize


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
