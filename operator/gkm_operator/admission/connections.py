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

_MAX_DISCARDED = 16 << 20
"""Twice the largest body: who sends more than it said is not listened to for ever."""


class Connection:
    """A client. Every method that waits ends by cancellation, and raises OSError when the client has gone.

    The standard library's own TLS transport holds 256 KiB for each connection from the start; this holds what OpenSSL
    needs, some 50 KiB in all.
    """

    def __init__(self, tls: ssl.SSLSocket) -> None:
        self._tls = tls

    async def shake_hands(self) -> None:
        """Agree on keys, or raise OSError (ssl.SSLError) where what is spoken is no TLS of ours."""
        await self._until_done(self._tls.do_handshake)

    async def receive(self) -> bytes:
        """Return what has come, at most `CHUNK` bytes, nothing at the end."""
        return await self._until_done(lambda: self._tls.recv(CHUNK))

    async def send(self, data: bytes) -> None:
        """Write all of it."""
        left = memoryview(data)
        while left:
            left = left[await self._until_done(lambda: self._tls.send(left)) :]  # noqa: B023 -- called before it changes

    async def part(self) -> None:
        """Say that nothing more is said, and listen until the client parts as well.

        Closed with something unread, the connection would be reset, and the client might lose the answer.
        """
        self._tls.shutdown(socket.SHUT_WR)  # ends TLS too: what comes now is discarded, not decrypted
        discarded = 0
        while discarded < _MAX_DISCARDED and (part := await self._until_done(lambda: self._tls.recv(CHUNK))):
            discarded += len(part)

    def has_spoken(self) -> bool:
        """Return whether there is something to receive."""
        with suppress(OSError):
            # Past TLS, whose own `recv` cannot look without taking.
            return bool(socket.socket.recv(self._tls, 1, socket.MSG_PEEK))
        return False

    def close(self) -> None:
        """End at once."""
        self._tls.close()

    async def _until_done(self, step: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                result = step()
            except (ssl.SSLWantReadError, BlockingIOError):
                await self._event(loop.add_reader, loop.remove_reader)
            except ssl.SSLWantWriteError:
                await self._event(loop.add_writer, loop.remove_writer)
            else:
                # A client that always has more to say takes turns with the others.
                await asyncio.sleep(0)
                return result

    async def _event(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        number, come = self._tls.fileno(), asyncio.Event()
        add(number, come.set)
        try:
            await come.wait()
        finally:
            remove(number)
