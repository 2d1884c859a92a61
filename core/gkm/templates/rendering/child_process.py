"""One child that renders: its start, its deadlines, its end and what the end means. For one thread at a time.

A failed exchange kills the child, and the next exchange starts another. The child has no environment.
"""

import signal
import socket
import sys
import time

from gkm.hoststate.child_process import ChildProcess
from gkm.hoststate.frames import HEADER_BYTES, frame, size_of
from gkm.templates.rendering import frames
from gkm.templates.values import RenderingFailed, RenderingUnavailable

REQUEST_SECONDS = 1.8
"""From the first byte of a request to the last one of its reply; with the kill of the child, 2 s on a busy machine."""
START_SECONDS = 10.0
"""An interpreter and Jinja2 need 0.2 s on an idle machine."""
_ENDING_SECONDS = 1.0
"""A child that has closed its end of the socket is ending."""
_KILL_SECONDS = 10.0
_PROGRAM = (sys.executable, "-I", "-W", "ignore", "-m", "gkm.templates.rendering.child")
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class RenderingChild:
    """A child that starts with the first exchange."""

    def __init__(self) -> None:
        self._running: ChildProcess | None = None

    def exchange(self, request: bytes) -> bytes:
        """Return the reply to a request.

        Raises:
            RenderingFailed: the request exceeded a limit.
            RenderingUnavailable: the child did not start, was killed, or got too little CPU time.
        """
        try:
            if self._running is None or not _silent(self._running.socket):
                # It was killed since the last request, or wrote more than its reply.
                self.end()
                self._running = _start()
                _receive(self._running.socket, time.monotonic() + START_SECONDS)
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
        """Kill the child if it does not end by itself within `seconds`; return its exit status, 0 without a child."""
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
