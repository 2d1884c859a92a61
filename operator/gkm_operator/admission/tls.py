"""The server's certificate: the files as they are now, without a restart. Accepts nothing and reads no connection."""

import ssl
from contextlib import suppress
from pathlib import Path
from socket import socket


class Certificate:
    """Certificate and key of a server, from two PEM files.

    Files that changed are loaded with the next connection; while they do not fit each other, the old pair serves on.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files.

        Raises:
            OSError: a file cannot be read, or (ssl.SSLError) the two are no pair.
        """
        self._files = (certificate, key)
        self._stamp = self._read_stamp()
        self._context = self._load()

    def wrap(self, connection: socket) -> ssl.SSLSocket:
        """Return a connection that does not block as TLS, before its handshake.

        A context is made anew, never changed: a pair that does not fit would leave half of itself in the old one.

        Raises:
            OSError: the client has gone.
        """
        stamp = self._read_stamp()
        if stamp != self._stamp:
            with suppress(OSError):  # half-way through a rotation; asked again with the next connection
                self._context, self._stamp = self._load(), stamp
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # a handshake is the dearest thing a client can ask for: one each
        # A key that is encrypted is an error, never a question at a terminal, which nobody would answer.
        context.load_cert_chain(*self._files, password=str)
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()
