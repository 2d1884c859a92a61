"""Running a program of the node: found at fixed places, bounded in time and output, its answer handed on as bytes."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gkm.gpus.values import printable

_KILL_SECONDS = 2.0
_CHUNK = 1 << 16
_MAX_COMPLAINT = 4096


class CommandFailed(Exception):
    """The program gave no answer that can be used; the message says which and why."""


def find(configured: str, candidates: Sequence[str]) -> str | None:
    """Return the program that is configured, else the first candidate that is there; never one of $PATH."""
    return next((path for path in ((configured,) if configured else candidates) if os.access(path, os.X_OK)), None)


@dataclass(slots=True)
class Command:
    """A command line, run by one caller at a time; seconds and bytes are bounds of one run."""

    arguments: Sequence[str]
    seconds: float
    max_bytes: int
    _stuck: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def run(self) -> bytes:
        """Return what the program prints.

        Raises:
            CommandFailed: it cannot be started, takes too long, prints too much, or fails.
        """
        name = Path(self.arguments[0]).name
        if self._stuck is not None and self._stuck.poll() is None:
            raise CommandFailed(f"{name}: the previous run still hangs in the kernel")
        self._stuck = None
        try:
            process = subprocess.Popen(  # noqa: S603 -- a fixed or configured absolute path, and our own arguments
                list(self.arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(f"{name} does not start: {error.strerror}") from error
        self._running = process
        try:
            return _read_output(name, process, time.monotonic() + self.seconds, self)
        finally:
            self._end(process)
            self._running = None

    def cancel(self) -> None:
        """End a run that is under way in another thread."""
        if (process := self._running) is not None:
            _kill(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        _kill(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        try:
            process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._stuck = process


def _read_output(name: str, process: subprocess.Popen[bytes], deadline: float, bounds: Command) -> bytes:
    assert process.stdout is not None  # noqa: S101 -- we asked for the pipes
    assert process.stderr is not None  # noqa: S101
    output, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, output)
        selector.register(process.stderr, selectors.EVENT_READ, complaint)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise CommandFailed(f"{name}: no answer within {bounds.seconds:g} s")
            for key, _ in selector.select(remaining):
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
            del complaint[_MAX_COMPLAINT:]
            if len(output) > bounds.max_bytes:
                raise CommandFailed(f"{name}: more than {bounds.max_bytes} bytes")
    try:
        # It closed its output, so it is ending; how it ends says whether to believe it.
        code = process.wait(max(0.0, deadline - time.monotonic()) + _KILL_SECONDS)
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{name}: it does not end") from None
    if code != 0:
        said = printable(" ".join(complaint.decode(errors="replace").split()), 160)
        raise CommandFailed(f"{name} ended with {code}" + (f": {said}" if said else ""))
    return bytes(output)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it with what it started: its group is its own, and nobody else's while it is not reaped."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
