"""The parent's side of rendering: requests in, checked replies out.

The reply of a child is foreign text, because an expression may have taken it over: it is bounded before it is decoded.
A failed exchange kills the child, and the next exchange starts another. The child has no environment.
"""

import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, LifoQueue
from typing import Any

import msgspec

from gkm.api import json_limits
from gkm.hoststate.child_process import ChildProcess
from gkm.hoststate.escaping import escape
from gkm.hoststate.frames import HEADER_BYTES, frame, size_of
from gkm.templates.encoding import encoded
from gkm.templates.rendering import frames
from gkm.templates.rendering.frames import MAX_REQUEST_BYTES
from gkm.templates.rendering.renderer import Rendered
from gkm.templates.values import Json, RenderingFailed, RenderingUnavailable, TemplateInvalid, check_levels

CHILDREN = 2
"""Number of child processes, so that one expensive template does not stop the others."""
WAIT_SECONDS = 5.0
"""Seconds that a request waits for a free child."""
_MAX_MESSAGE = 1_000
REQUEST_SECONDS = 1.8
"""Seconds from the first byte of a request to the last byte of its reply."""
START_SECONDS = 10.0
"""Seconds for the start of a child; an idle machine needs 0.2 s."""
_ENDING_SECONDS = 1.0
"""Seconds to wait for a child that has closed its socket."""
_KILL_SECONDS = 10.0
_PROGRAM = (sys.executable, "-I", "-W", "ignore", "-m", "gkm.templates.rendering.child")
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class ChildReply(msgspec.Struct, frozen=True):
    """A decoded reply of a rendering child process."""

    objects: list[dict[str, Any]] = []
    verdicts: list[bool] = []
    problems: list[str] = []
    error: str = ""


class RenderingProcess:
    """Renders templates in child processes, which it starts when needed. Thread-safe; requests must never be logged."""

    def __init__(self) -> None:
        # The last one used is the first: the second starts only when two are needed at once.
        self._idle: LifoQueue[RenderingChild] = LifoQueue()
        for _ in range(CHILDREN):
            self._idle.put(RenderingChild())

    def render(self, templates: Sequence[Json], variables: Json, rules: Sequence[str] = ()) -> Rendered:
        """Return the rendered templates, and whether each rule is true; no template is rendered if a rule is false.

        Raises:
            RenderingFailed: an expression fails or exceeds a limit; the message names its place.
            RenderingUnavailable: rendering is not possible now; try again later.
        """
        reply = self._reply({"render": templates, "variables": variables, "rules": rules})
        expected = len(templates) if all(reply.verdicts) else 0
        if (len(reply.objects), len(reply.verdicts)) != (expected, len(rules)):
            raise RenderingFailed(
                "the rendering process sent another number of objects or rules than requested, so its reply is not used"
            )
        return Rendered(reply.objects, reply.verdicts)

    def compile(self, template: Json, rules: Sequence[str] = ()) -> list[str]:
        """Return the problems in the expressions of a template and of rules, such as unknown variables.

        Raises:
            RenderingFailed: compiling exceeds a limit.
            RenderingUnavailable: rendering is not possible now; try again later.
        """
        return [_excerpt(problem) for problem in self._reply({"compile": template, "rules": rules}).problems]

    def close(self) -> None:
        """End the child processes; a later request fails with RenderingUnavailable after WAIT_SECONDS."""
        for _ in range(CHILDREN):
            with suppress(Empty):
                self._idle.get(timeout=START_SECONDS + REQUEST_SECONDS).end()

    def _reply(self, request: Json) -> ChildReply:
        try:
            payload = encoded(request, MAX_REQUEST_BYTES, "templates, variables and rules")
        except TemplateInvalid as error:
            raise RenderingFailed(str(error)) from None
        try:
            child = self._idle.get(timeout=WAIT_SECONDS)
        except Empty:
            raise RenderingUnavailable(f"no rendering process was free for {WAIT_SECONDS:g} s; try again") from None
        try:
            text = child.exchange(payload)
        finally:
            self._idle.put(child)
        reply = decode(text)
        if reply.error:
            raise RenderingFailed(_excerpt(reply.error))
        return reply


def decode(text: bytes) -> ChildReply:
    """Decode a reply of a rendering child; raise RenderingFailed if it is malformed or too large."""
    try:
        json_limits.check_objects(text)
        json_limits.check_items(text)
        reply = msgspec.json.decode(text, type=ChildReply)
        check_levels(reply.objects)
    except (
        msgspec.DecodeError,
        json_limits.TooManyValues,
        TemplateInvalid,
        RecursionError,
        UnicodeDecodeError,
    ) as error:
        raise RenderingFailed(f"the rendered objects cannot be used: {_excerpt(str(error))}") from None
    return reply


def _excerpt(message: str) -> str:
    return escape(message[:_MAX_MESSAGE])


class RenderingChild:
    """One child process that renders templates, for one thread at a time; it starts with the first request."""

    def __init__(self) -> None:
        self._running: ChildProcess | None = None

    def exchange(self, request: bytes) -> bytes:
        """Send a rendering request to the child and return the reply.

        Raises:
            RenderingFailed: the request exceeded a limit.
            RenderingUnavailable: the child did not start, was killed, or got too little CPU time.
        """
        try:
            if self._running is None or not _silent(self._running.socket):
                # It was killed since the last request, or wrote more than its reply.
                self.end()
                self._running = _start()
                _await_start(self._running.socket)
            channel, deadline = self._running.socket, time.monotonic() + REQUEST_SECONDS
            channel.settimeout(REQUEST_SECONDS)
            channel.sendall(frame(request))
            return _receive(channel, deadline)
        except TimeoutError:
            self.end()
            raise RenderingUnavailable(f"rendering did not end within {REQUEST_SECONDS:g} s; try again") from None
        except (ConnectionError, EOFError):
            raise _failure(self.end(_ENDING_SECONDS)) from None
        except BaseException:
            self.end()
            raise

    def end(self, seconds: float = 0) -> int:
        """Wait `seconds` for the child process to end, then kill it; return its exit status, 0 if no child runs."""
        if self._running is None:
            return 0
        child, self._running = self._running, None
        child.socket.close()
        child.has_exited(seconds)
        code = child.end(0, _KILL_SECONDS)
        return -signal.SIGKILL if code is None else code


def _start() -> ChildProcess:
    try:
        return ChildProcess(_PROGRAM, {})
    except OSError as error:
        raise RenderingUnavailable(f"the rendering process does not start: {error.strerror}") from error


def _await_start(channel: socket.socket) -> None:
    try:
        _receive(channel, time.monotonic() + START_SECONDS)
    except TimeoutError:
        why = f"the rendering process does not start within {START_SECONDS:g} s; try again"
        raise RenderingUnavailable(why) from None


def _silent(channel: socket.socket) -> bool:
    """Return whether the other end is open and has sent nothing."""
    channel.settimeout(0)
    try:
        channel.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


def _receive(channel: socket.socket, deadline: float) -> bytes:
    size = size_of(_exactly(channel, HEADER_BYTES, deadline))
    if size > frames.MAX_REPLY_BYTES:
        raise RenderingFailed(f"the rendering process replies with more than {frames.MAX_REPLY_BYTES} bytes")
    return _exactly(channel, size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < size:
        channel.settimeout(max(deadline - time.monotonic(), 0.001))
        piece = channel.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)


def _failure(code: int) -> RenderingFailed | RenderingUnavailable:
    """Return what the end of a child means: its exit status, or the negative number of a signal."""
    if code == -signal.SIGPROF:
        return RenderingFailed(f"the expressions need more than {frames.CPU_SECONDS:g} s of CPU time")
    if code == frames.OUT_OF_MEMORY:
        return RenderingFailed(f"the expressions need more than {frames.HEADROOM_BYTES >> 20} MiB of memory")
    if -code in _CRASHES:
        return RenderingFailed(f"the expressions crash Python (signal {-code})")
    return RenderingUnavailable(f"the rendering process ended with status {code}; try again")
