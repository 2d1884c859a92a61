"""Run a program in bounded time and memory, although it may hang, flood its output or stick in the kernel.

A driver or a file system can hold a process in the kernel, where no signal ends it. `run` gives up on such a process
instead of waiting for it, and starts no second one until the first has ended: a broken driver never gathers processes.
The program runs in a new session, so that the kill also reaches the processes that it started.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

KILL_SECONDS = 2.0
"""Seconds that `run` waits for a killed process to end, and for a process that has closed its output."""
MAX_STDERR_BYTES = 4096
_CHUNK = 1 << 16


class RunFailed(Exception):
    """The program did not run to its end; the message is the end of a sentence that begins with the program's name."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a program: exit status (negative for a signal), standard output, first bytes of standard error."""

    code: int
    output: bytes
    errors: bytes


@dataclass(slots=True)
class BoundedCommand:
    """A command line with the bounds of one run; concurrent runs wait for one another.

    `environment` None inherits the variables of this process. Without `capture_errors` standard error is discarded.
    `own_session` False leaves the program in the session and process group of this process: a program that asks for a
    password needs the terminal. The kill then reaches only the program itself.
    """

    arguments: Sequence[str]
    seconds: float
    max_bytes: int
    environment: Mapping[str, str] | None = None
    directory: str | None = None
    capture_errors: bool = False
    own_session: bool = True
    _lock: Lock = field(default_factory=Lock, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    """The process of the last run: it has ended, unless it runs now or is stuck in the kernel."""
    _cancelled: bool = field(default=False, init=False)

    def run(self, stdin: bytes = b"") -> CommandResult:
        """Run the program with `stdin` as its standard input and return its result, with any exit status.

        Raises:
            RunFailed: it does not start, exceeds a bound, or an earlier run still hangs in the kernel.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise RunFailed("still hangs in the kernel since an earlier run")
            self._cancelled = False
            self._process = process = self._start(piped=bool(stdin))
            if self._cancelled:
                self._kill(process)
            try:
                return self._result(process, stdin, time.monotonic() + self.seconds)
            except OSError as error:
                raise RunFailed(f"cannot be read: {error.strerror}") from error
            finally:
                self._end(process)

    def cancel(self) -> None:
        """Kill the program that another thread runs; its `run` returns or raises at once."""
        # Before the process is read: `run` sets the process first and reads this afterwards, so one side sees the
        # other, also when the program runs before Popen has returned.
        self._cancelled = True
        if self._process is not None:
            self._kill(self._process)

    def _start(self, *, piped: bool) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 -- no shell; the caller has checked the program
                list(self.arguments),
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if self.capture_errors else subprocess.DEVNULL,
                env=None if self.environment is None else dict(self.environment),
                cwd=self.directory,
                start_new_session=self.own_session,
                bufsize=0,
            )
        except OSError as error:
            raise RunFailed(f"does not start: {error.strerror}") from error

    def _result(self, process: subprocess.Popen[bytes], stdin: bytes, deadline: float) -> CommandResult:
        output, errors = self._exchange(process, memoryview(stdin), deadline)
        try:
            # A program that closed its output is ending; its exit status tells whether the output is complete.
            code = process.wait(max(0.0, deadline - time.monotonic()) + KILL_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunFailed("does not end") from None
        return CommandResult(code, output, errors)

    def _exchange(self, process: subprocess.Popen[bytes], unsent: memoryview, deadline: float) -> tuple[bytes, bytes]:
        """Write standard input, and read output and errors until all their writers have closed them."""
        output, errors = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            _register(selector, process, output, errors)
            while selector.get_map():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise RunFailed(f"gives no answer within {self.seconds:g} s")
                for key, _ in selector.select(remaining):
                    if key.data is None:
                        unsent = _write(key.fd, unsent)
                    elif chunk := os.read(key.fd, _CHUNK):
                        key.data.extend(chunk)
                    else:
                        selector.unregister(key.fileobj)
                if process.stdin is not None and not unsent and not process.stdin.closed:
                    selector.unregister(process.stdin)
                    process.stdin.close()
                del errors[MAX_STDERR_BYTES:]
                if len(output) > self.max_bytes:
                    raise RunFailed(f"prints more than {self.max_bytes} bytes")
        return bytes(output), bytes(errors)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._kill(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            # Until it is reaped, no other process can have its number, nor a group of that number.
            if self.own_session:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()


def _register(
    selector: selectors.BaseSelector, process: subprocess.Popen[bytes], output: bytearray, errors: bytearray
) -> None:
    """Register the pipes of a process, those to read with their buffers."""
    for pipe, buffer in ((process.stdout, output), (process.stderr, errors)):
        if pipe is not None:
            selector.register(pipe, selectors.EVENT_READ, buffer)
    if process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)


def _write(descriptor: int, unsent: memoryview) -> memoryview:
    """Write a part of `unsent` and return the rest; a program that reads no input gets no input."""
    try:
        return unsent[os.write(descriptor, unsent) :]
    except BrokenPipeError:
        return unsent[:0]
