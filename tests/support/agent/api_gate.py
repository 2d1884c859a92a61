"""A gate before a real API server: open, shut so that nobody connects, or mute so that all connect and hear nothing.

Certificates hold for what is behind it, because both answer on 127.0.0.1.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from support.host import ports

PIECE = 64 << 10


class Gate:
    """A TCP relay on a port of its own that never changes, as an API server's address does not."""

    def __init__(self, target_port: int) -> None:
        self.port = ports.free()
        self._target_port = target_port
        self._mute = Event()
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []

    @classmethod
    @contextmanager
    def before(cls, target_port: int) -> Iterator["Gate"]:
        """Stand before a port of this machine, open."""
        gate = cls(target_port)
        gate.open()
        try:
            yield gate
        finally:
            gate.shut()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Let through what comes from now on. What was connected to a mute gate breaks, as when a server restarts."""
        self.shut()
        self._mute.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        Thread(target=self._accept, args=(self._listener,), name="gate", daemon=True).start()

    def shut(self) -> None:
        """Refuse whoever comes, and break off every connection."""
        if self._listener is not None:
            _end(self._listener)
            self._listener = None
        for connection in self._connections:
            _end(connection)
        self._connections.clear()

    def silence(self) -> None:
        """Keep every connection and take new ones, and swallow what is said in them: a network that drops packets."""
        self._mute.set()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._target_port))
                self._connections += [client, server]
                if self._listener is not listener:
                    # It was shut since this one came.
                    _end(client)
                    _end(server)
                for source, target in ((client, server), (server, client)):
                    Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                if not self._mute.is_set():
                    target.sendall(data)
        if not self._mute.is_set():
            _end(source)
            _end(target)


def _end(connection: socket.socket) -> None:
    # Closing alone does not wake a thread that waits in it.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
