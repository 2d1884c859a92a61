"""The child's side: the events, replies and view that a provider gets, over one socket.

A thread reads the socket. When the controllers ask the provider to stop, or are gone, every waiting call of the
provider ends with ProviderStopped.
"""

import socket
from collections import deque
from threading import Condition, Lock
from threading import Event as Flag

from gkm.hoststate.frames import HEADER_BYTES, frame, size_of
from gkm.topology.providers import Event, ProviderStopped, Reply

from gkm_operator.hypernodes.providers.mailbox import MAX_REPLIES
from gkm_operator.hypernodes.providers.messages import (
    MAX_FRAME_BYTES,
    FromChild,
    InvalidMessage,
    ToChild,
    decode_from_child,
    decode_to_child,
    encode,
)
from gkm_operator.hypernodes.providers.view import LiveView


class ControllerConnection:
    """Messages with the controllers. It is the `events` and the `replies` of a provider, and has its view."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._stream = channel.makefile("rb")
        self._sending = Lock()
        self._replies: deque[Reply] = deque(maxlen=MAX_REPLIES)
        self._arrived = Condition()
        self.view = LiveView()
        self.stopped = Flag()

    def put(self, event: Event) -> None:
        """Send an event."""
        data = encode(FromChild(event=event))
        if len(data) > MAX_FRAME_BYTES:
            raise ValueError(f"an event of {len(data)} bytes; {MAX_FRAME_BYTES} are possible")
        try:
            # As the controllers will: an error here has the line of code that sends it.
            decode_from_child(data)
        except InvalidMessage as error:
            raise ValueError(str(error)) from None
        self._send(data)

    def get(self, timeout: float | None = None) -> Reply | None:
        """Return the next reply, None after `timeout` seconds without one."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._replies or self.stopped.is_set(), timeout)
            if self.stopped.is_set():
                raise ProviderStopped
            return self._replies.popleft() if self._replies else None

    def send(self, message: FromChild) -> None:
        """Send a message other than an event.

        Raises:
            OSError: the controllers do not listen any more.
        """
        with self._sending:
            self._channel.sendall(frame(encode(message)))

    def receive(self) -> ToChild | None:
        """Return the next message, None when the controllers are gone."""
        header = self._stream.read(HEADER_BYTES)
        return decode_to_child(self._stream.read(size_of(header))) if len(header) == HEADER_BYTES else None

    def apply(self, message: ToChild) -> None:
        """Apply a reply or a change of the view."""
        if message.reply is not None:
            with self._arrived:
                self._replies.append(message.reply)
                self._arrived.notify_all()
        else:
            self.view.update(message)

    def stop(self) -> None:
        """End every waiting call of the provider."""
        self.stopped.set()
        self.view.stop()
        with self._arrived:
            self._arrived.notify_all()

    def _send(self, data: bytes) -> None:
        with self._sending:
            if self.stopped.is_set():
                raise ProviderStopped
            try:
                self._channel.sendall(frame(data))
            except OSError:
                raise ProviderStopped from None
