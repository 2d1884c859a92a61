"""Frames from a socket that never blocks: a message counts when its last byte is here.

Of all children one at a time sends a large message: 16 of them, with MAX_FRAME_BYTES each, would exceed the memory of
the controllers.
"""

import socket
from threading import Lock

from gkm.hoststate.frames import HEADER_BYTES, size_of

from gkm_operator.hypernodes.providers.messages import MAX_FRAME_BYTES, InvalidMessage

_LARGE_BYTES = 1 << 20
_LARGE = Lock()
_CHUNK = 1 << 18


class FrameReader:
    """Reads the messages of one child, for one thread."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._received = bytearray()
        self._has_lock = False

    @property
    def in_message(self) -> bool:
        """Whether a message has begun and not ended, and this side does not let it wait."""
        return bool(self._received) and not self.must_wait()

    def must_wait(self) -> bool:
        """Return whether the next message must wait for that of another child."""
        if self._has_lock or len(self._received) < HEADER_BYTES or size_of(self._received) <= _LARGE_BYTES:
            return False
        self._has_lock = _LARGE.acquire(blocking=False)
        return not self._has_lock

    def read(self) -> bytes | None:
        """Read the available bytes; return a message if it is complete. It must not have to wait.

        Call `release` when the message is applied.

        Raises:
            EOFError: the other end is closed.
            InvalidMessage: the message is too large.
        """
        missing = HEADER_BYTES - len(self._received)
        if missing <= 0:
            missing += size_of(self._received)
        try:
            piece = self._channel.recv(min(missing, _CHUNK))
        except BlockingIOError:
            return None
        except ConnectionError:
            raise EOFError from None
        if not piece:
            raise EOFError
        self._received += piece
        if len(self._received) < HEADER_BYTES:
            return None
        size = size_of(self._received)
        if not 0 < size <= MAX_FRAME_BYTES:
            raise InvalidMessage(f"a message of {size} bytes; {MAX_FRAME_BYTES} are possible")
        if len(self._received) < HEADER_BYTES + size:
            return None
        message = bytes(memoryview(self._received)[HEADER_BYTES:])
        self._received = bytearray()
        return message

    def release(self) -> None:
        """Let another child send a large message."""
        if self._has_lock:
            self._has_lock = False
            _LARGE.release()
