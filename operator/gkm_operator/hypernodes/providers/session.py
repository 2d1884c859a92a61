"""One life of a child: messages in both directions, deadlines and limits, until it ends or must end.

One thread runs it. What the child sends is read no faster than it is applied, and takes only a part of the time of the
controllers: after each message the child waits a multiple of the time that the message took. Nothing that the child
does can block this thread.
"""

import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gkm.hoststate.child_process import ChildProcess
from gkm.hoststate.escaping import escape
from gkm.hoststate.frames import frame
from gkm.topology.providers import Event

from gkm_operator.hypernodes.providers.frame_reader import FrameReader
from gkm_operator.hypernodes.providers.mailbox import Mailbox
from gkm_operator.hypernodes.providers.messages import MAX_FAILURE, STOP_SECONDS, InvalidMessage, decode_from_child
from gkm_operator.hypernodes.providers.status import ProviderFault
from gkm_operator.hypernodes.providers.usage import usage_of

_NEVER = float("inf")
_TURN_SECONDS = 0.05
"""How often a child whose message must wait for that of another tries again."""
_EXIT_SECONDS = 1.0
_LAST_READS = 1_024
"""Of a child that has exited: what it started may still send."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a child may take, in seconds where nothing else is stated.

    `start`: until its first event. `stale`: between two events, 0 for ever, None as the provider states. `message`:
    from the first byte of a message to its last. `rest`: how many times as long as a message took the child waits.
    `look`: between two looks at the memory and the `processes` of its process group.
    """

    max_memory_bytes: int
    stale: float | None = None
    start: float = 300.0
    message: float = 60.0
    stop: float = STOP_SECONDS
    rest: float = 4.0
    longest_rest: float = 10.0
    look: float = 2.0
    processes: int = 32


class Session:
    """Messages with one child, until it ends. `receive` applies an event and returns whether it counts."""

    def __init__(
        self, child: ChildProcess, mailbox: Mailbox, limits: ChildLimits, receive: Callable[[Event], bool]
    ) -> None:
        self._child = child
        self._mailbox = mailbox
        self._limits = limits
        self._receive = receive
        self._reader = FrameReader(child.socket)
        self._unsent = memoryview(b"")
        now = time.monotonic()
        self._rest_until = now
        self._look_at = now + limits.look
        self._silent_until = now + limits.start
        self._silence = f"sent no snapshot within {limits.start:g} s"
        self._stale = limits.stale or 0.0
        self._message_until = self._stop_until = _NEVER

    def run(self) -> None:
        """Return when the child has exited.

        Raises:
            ProviderFault: it must end, or states why it ends.
        """
        self._child.socket.settimeout(0)
        try:
            while not self._has_exited():
                self._check_deadlines(time.monotonic())
        except InvalidMessage as error:
            raise ProviderFault(f"sent {error}") from None
        finally:
            self._reader.release()

    def _has_exited(self) -> bool:
        """Wait until something happens and act on it; return whether the child has exited."""
        ready = self._wait(time.monotonic())
        if self._mailbox.stopping and self._stop_until == _NEVER:
            self._stop_until = time.monotonic() + self._limits.stop
        try:
            if self._child.socket.fileno() in ready:
                self._send()
                self._read()
            elif self._mailbox.waiting in ready:
                self._send()
            if self._child.exited in ready:
                for _ in range(_LAST_READS):
                    self._rest_until = 0
                    self._read()
                return True
        except EOFError:
            if not self._child.has_exited(_EXIT_SECONDS):
                raise ProviderFault("closed its connection") from None
            return True
        return False

    def _wait(self, now: float) -> set[int]:
        """Return the descriptors that are ready, before the next deadline."""
        poll = select.poll()
        poll.register(self._child.exited, select.POLLIN)
        rests = now < self._rest_until
        if events := (0 if rests else select.POLLIN) | (select.POLLOUT if self._unsent else 0):
            poll.register(self._child.socket, events)
        if not self._unsent:
            poll.register(self._mailbox.waiting, select.POLLIN)
        deadlines = [self._look_at, self._silent_until, self._message_until, self._stop_until]
        if rests:
            deadlines.append(self._rest_until)
        return {descriptor for descriptor, _ in poll.poll(max(min(deadlines) - now, 0) * 1000 + 1)}

    def _send(self) -> None:
        """Send as much as the child takes now."""
        if not self._unsent:
            self._unsent = memoryview(frame(message) if (message := self._mailbox.take()) else b"")
        with suppress(BlockingIOError):
            try:
                self._unsent = self._unsent[self._child.socket.send(self._unsent) :]
            except ConnectionError:
                # What it has sent before is still to be read.
                self._unsent = memoryview(b"")

    def _read(self) -> None:
        """Read a part of a message, and apply it when it is complete.

        Raises:
            EOFError: the child has closed its end.
            ProviderFault: the message states why the child ends.
        """
        now = time.monotonic()
        if now < self._rest_until:
            return
        if self._reader.must_wait():
            self._rest_until, self._message_until = now + _TURN_SECONDS, _NEVER
            # The other child has so long for its message, and this one is not silent.
            self._silent_until = max(self._silent_until, now + self._limits.message)
            return
        message = self._reader.read()
        if message is not None:
            self._apply(message)
            took = time.monotonic() - now
            self._rest_until = now + took + min(took * self._limits.rest, self._limits.longest_rest)
        if message is not None or not self._reader.in_message:
            self._message_until = _NEVER
        elif self._message_until == _NEVER:
            self._message_until = now + self._limits.message

    def _apply(self, data: bytes) -> None:
        message = decode_from_child(data)
        if message.failure:
            raise ProviderFault(escape(message.failure[:MAX_FAILURE]))
        if message.stale_seconds and self._limits.stale is None:
            self._stale = message.stale_seconds
        # After `stop` nothing counts any more.
        if message.event is not None and not self._mailbox.stopping and self._receive(message.event):
            self._silent_until = time.monotonic() + self._stale if self._stale else _NEVER
            self._silence = f"sent nothing for {self._stale:g} s"
        self._reader.release()

    def _check_deadlines(self, now: float) -> None:
        """Raise ProviderFault if one has passed."""
        if now >= self._stop_until:
            raise ProviderFault(f"did not stop within {self._limits.stop:g} s")
        if now >= self._silent_until:
            raise ProviderFault(self._silence)
        if now >= self._message_until:
            raise ProviderFault(f"did not complete a message within {self._limits.message:g} s")
        if now < self._look_at:
            return
        self._look_at = now + self._limits.look
        usage = usage_of(self._child.pid)
        if usage.processes > self._limits.processes:
            raise ProviderFault(f"runs {usage.processes} processes; {self._limits.processes} are possible")
        if usage.resident > self._limits.max_memory_bytes:
            raise ProviderFault(f"uses {usage.resident} bytes of memory; {self._limits.max_memory_bytes} are possible")
