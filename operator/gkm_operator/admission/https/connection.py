"""One TLS connection in an event loop. Knows nothing of HTTP, and no deadline: whoever waits here brings one."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

CHUNK = 16 << 10
"""What one record of TLS holds at most (RFC 8446, section 5.1): more is never had at once."""

FED = 4 << 10
"""So much is given to TLS in one turn. OpenSSL reads on for as long as what comes is no data: where it read the socket
itself, clients that sent only KeyUpdates (27 bytes, RFC 8446, section 4.6.3) held the loop for half a minute."""

_MAX_DISCARDED = 16 << 20
"""Four times the largest body: who sends more than it said is not listened to for ever."""


class Connection:
    """A client. Every method that waits ends by cancellation, and raises OSError when the client has gone.

    The standard library's own TLS transport holds 256 KiB for each connection from the start; this holds what OpenSSL
    needs, some 50 KiB in all.
    """

    def __init__(self, client: socket.socket, context: ssl.SSLContext) -> None:
        """Take a client whose socket does not block."""
        self._socket = client
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self) -> None:
        """Agree on keys, or raise OSError (ssl.SSLError) where what is spoken is no TLS of ours."""
        await self._until_done(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """Return what has come, at most `CHUNK` bytes, nothing at the end."""
        try:
            return await self._until_done(lambda: self._tls.read(CHUNK))
        except ssl.SSLEOFError:  # it ended without a word
            return b""

    async def send(self, data: bytes) -> None:
        """Write all of it."""
        left = memoryview(data)
        while left:
            left = left[await self._until_done(lambda: self._tls.write(left)) :]  # noqa: B023 -- called before it changes
        await asyncio.sleep(0)  # a client that always has one more request takes turns with the others

    async def part(self) -> None:
        """Say that nothing more is said, and listen until the client parts as well.

        Closed with something unread, the connection would be reset, and the client might lose the answer.
        """
        self._socket.shutdown(socket.SHUT_WR)  # ends TLS too: what comes now is discarded, not decrypted
        discarded = 0
        while discarded < _MAX_DISCARDED and (part := await self._closed_or_readable(CHUNK)):
            discarded += len(part)

    def has_pending_data(self) -> bool:
        """Return whether there is something to receive."""
        with suppress(OSError):
            return bool(self._incoming.pending or self._socket.recv(1, socket.MSG_PEEK))
        return False

    def close(self) -> None:
        """End at once."""
        self._socket.close()

    async def _until_done(self, step: Callable[[], T]) -> T:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                if self._outgoing.pending:  # also the alert that says why there is nothing more
                    await self._go(self._outgoing.read())
            if part := await self._closed_or_readable(FED):
                self._incoming.write(part)
            else:
                self._incoming.write_eof()
            # A client that always has more to say takes turns with the others; until its turn it has spoken.
            await asyncio.sleep(0)

    async def _closed_or_readable(self, most: int) -> bytes:
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, most)
        except OSError as error:
            raise _without_future(error)  # noqa: B904 -- it is the same error

    async def _go(self, data: bytes) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except OSError as error:
            raise _without_future(error)  # noqa: B904 -- it is the same error


def _without_future(error: OSError) -> OSError:
    """Return an error of the event loop without its traceback, which has the loop's future, which has the error.

    All that the frames of a conversation hold would stay in that cycle until the garbage collector comes by.
    """
    return error.with_traceback(None)
