"""TLS for cheroot: the handshake in the worker's thread, and new certificates without a restart."""

import ssl
from pathlib import Path
from socket import socket
from threading import Lock
from typing import Any

from cheroot.errors import FatalSSLAlert
from cheroot.makefile import MakeFile
from cheroot.ssl import Adapter


class LateHandshake(Adapter):
    """An adapter that does not shake hands in the accepting thread.

    cheroot's own does (ssl/builtin.py, `do_handshake_on_connect=True`): one client that connects and says nothing
    keeps everybody else waiting for its time-out. Here the first read shakes hands, in the thread of that request.
    Files that changed are loaded with the next connection; while they do not fit each other, the old pair serves on.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(str(certificate), str(key))
        self._files = (certificate, key)
        self._lock = Lock()
        self._stamp = self._read_stamp()
        self.context = self._load()

    def bind(self, sock: socket) -> socket:
        """Return the listening socket as it is."""
        return sock

    def wrap(self, sock: socket) -> tuple[ssl.SSLSocket, dict[str, str]]:
        """Return the connection as TLS, before its handshake."""
        try:
            wrapped = self._current().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError as error:  # gone before we looked; anything but this class would end cheroot's loop
            raise FatalSSLAlert(*error.args) from error
        return wrapped, self.get_environ()

    def get_environ(self) -> dict[str, str]:
        """Return what an application may know of the connection."""
        return {"wsgi.url_scheme": "https", "HTTPS": "on"}

    def makefile(self, sock: socket, mode: str = "r", bufsize: int = -1) -> Any:  # noqa: ANN401 -- cheroot's own type
        """Return the file object that cheroot reads from or writes to."""
        return MakeFile(sock, mode, bufsize)

    def _current(self) -> ssl.SSLContext:
        with self._lock:
            stamp = self._read_stamp()
            if stamp != self._stamp:
                try:
                    self.context = self._load()
                    self._stamp = stamp
                except (OSError, ssl.SSLError):
                    pass  # half-way through a rotation; asked again with the next connection
            context: ssl.SSLContext = self.context
            return context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()
