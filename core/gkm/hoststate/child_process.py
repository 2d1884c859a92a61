"""A child process with a socket pair: its start, and its end with all that it started.

The child inherits one descriptor, its end of the socket pair as standard input, and only the given environment. It runs
in a new session, so that a signal to its process group also reaches its own children. A child that hangs in the kernel,
where no signal ends it, is given up and never waited for without a limit.
"""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress


class ChildProcess:
    """A running child process. `socket` is this side of the pair; `exited` becomes readable when the child exits."""

    def __init__(self, program: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `program`.

        Raises:
            OSError: it does not start.
        """
        self.socket, childs = socket.socketpair()
        with childs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 -- no shell; the caller has checked the program
                    list(program),
                    stdin=childs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=dict(environment),
                    cwd="/",
                    start_new_session=True,
                )
            except OSError:
                self.socket.close()
                raise
        self.pid = self._process.pid
        """The number of the process, and of its process group and session."""
        self.exited = os.pidfd_open(self.pid)

    def end(self, grace_seconds: float, kill_seconds: float) -> int | None:
        """End the child process and its process group: SIGTERM, then SIGKILL after `grace_seconds`. Call it once.

        Return the exit status, negative for a signal, or None if the child hangs in the kernel.
        """
        self.socket.close()
        if grace_seconds > 0 and not self.has_exited():
            self._signal(signal.SIGTERM)
            self.has_exited(grace_seconds)
        # The child is not reaped yet, so no other process can have its number, nor a group of that number.
        self._signal(signal.SIGKILL)
        os.close(self.exited)
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(kill_seconds)
        return None

    def has_exited(self, seconds: float = 0.0) -> bool:
        """Return whether the child exits by itself within `seconds`; do not call it after `end`."""
        poll = select.poll()
        poll.register(self.exited, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
