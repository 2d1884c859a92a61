"""One TLS connection in an event loop, below HTTP and without deadlines: callers bound each wait."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

CHUNK = 16 << 10
"""The most that one TLS record holds (RFC 8446, section 5.1), so the most that one read returns."""

FEED_BYTES = 4 << 10
"""Bytes given to TLS in one step of the event loop. OpenSSL reads on while input contains no application data: when it
read the socket itself, clients that sent only KeyUpdates (27 bytes, RFC 8446, section 4.6.3) blocked the loop for half
a minute."""

_MAX_DISCARDED = 16 << 20
"""Four times the largest body: bounds how much a client may send after the last response."""


class Connection:
    """A client's connection. Every waiting method can be cancelled, and raises OSError when the client disconnects.

    The standard library's own TLS transport allocates 256 KiB for each connection at the start; this one holds only the
    buffers of OpenSSL, some 50 KiB in all.
    """

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        """Wrap the non-blocking socket of a client."""
        self._socket = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def handshake(self) -> None:
        """Perform the TLS handshake; raise OSError (ssl.SSLError) when the two sides agree on no version."""
        await self._until_done(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """Return received data, at most `CHUNK` bytes; b"" at the end."""
        try:
            return await self._until_done(lambda: self._tls.read(CHUNK))
        except ssl.SSLEOFError:  # the client closed without close_notify
            return b""

    async def send(self, data: bytes) -> None:
        """Write all of the data."""
        left = memoryview(data)
        while left:
            left = left[await self._until_done(lambda: self._tls.write(left)) :]  # noqa: B023 -- called before it changes
        await asyncio.sleep(0)  # let other sessions run between the requests of a busy client

    async def shut_down(self) -> None:
        """Close the sending side, and discard input until the client closes too.

        Closing with unread input would reset the connection, and the client might lose the response.
        """
        self._socket.shutdown(socket.SHUT_WR)  # ends TLS too: input is discarded from here on, not decrypted
        discarded = 0
        while discarded < _MAX_DISCARDED and (part := await self._receive(CHUNK)):
            discarded += len(part)

    def has_pending_data(self) -> bool:
        """Return whether received data has not been read yet."""
        with suppress(OSError):
            return bool(self._incoming.pending or self._socket.recv(1, socket.MSG_PEEK))
        return False

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close()

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                if self._outgoing.pending:  # also a TLS alert that explains the failure
                    loop = asyncio.get_running_loop()
                    await _without_future(loop.sock_sendall(self._socket, self._outgoing.read()))
            if part := await self._receive(FEED_BYTES):
                self._incoming.write(part)
            else:
                self._incoming.write_eof()
            # Let other sessions run between the chunks of a busy client.
            await asyncio.sleep(0)

    async def _receive(self, limit: int) -> bytes:
        return await _without_future(asyncio.get_running_loop().sock_recv(self._socket, limit))


async def _without_future(operation: Awaitable[T]) -> T:
    """Await an operation of the event loop; raise its error without the traceback.

    The traceback refers to the loop's future, and the future to the error. That cycle would keep everything in the
    session's frames alive until the garbage collector runs.
    """
    try:
        return await operation
    except OSError as error:
        raise error.with_traceback(None)  # noqa: B904 -- it is the same error
