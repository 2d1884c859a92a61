"""Runs a program of ours in forks of a process that has imported it: a short process spends most time on its imports.

The server has one program and one thread. It reads requests from the socket on its standard input: arguments,
environment and directory as JSON, with descriptors for the standard streams and for the answers. It forks, and answers
with the pid and, when the process has ended, with the exit code.

Each process has its own streams and environment; tests signal and kill it by its pid. The server determines what the
interpreter and the dynamic linker read when they start (the encoding of the streams, the terminal, LD_LIBRARY_PATH). A
test about that needs a new interpreter.
"""

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from support.host.waiting import scaled

STARTUP = ("PYTHON", "LC_", "LANG", "TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
"""Variables that the interpreter or a library reads once, by their beginnings."""
_REQUEST_BYTES = 128 << 10
_STREAMS = 3


class ForkedProcess:
    """A process that a server forked. Its server collects it: its exit code comes from the server."""

    def __init__(self, arguments: Sequence[str], answers: IO[bytes]) -> None:
        self.arguments = arguments
        self._answers = answers
        self._code: int | None = None
        self.pid = int(answers.readline())

    def wait(self, seconds: float) -> int:
        """Return the exit code, or the negative number of the signal that ended the process.

        Raises:
            subprocess.TimeoutExpired: the process runs on.
        """
        if self._code is None:
            if not select.select([self._answers], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired(list(self.arguments), seconds)
            with self._answers:
                self._code = int(self._answers.readline())
        return self._code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it has not ended."""
        try:
            self.wait(0)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):  # it has ended by now
                os.kill(self.pid, number)

    def kill(self) -> int:
        """End the process as a crash would; return its exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait(scaled(30))


class ForkServer:
    """A client of one server.

    `program` names a function, as in `gkm_agent.main:main`. `user` is a command that runs the server as another user,
    or with fewer rights: `setpriv` with its options.
    """

    def __init__(self, program: str, environment: Mapping[str, str], user: Sequence[str] = ()) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*user, sys.executable, "-m", "support.host.fork_server", program],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**environment, "PYTHONPATH": ":".join(path for path in sys.path if path)},
                start_new_session=True,
            )
        atexit.register(self.close)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[IO[bytes]]
    ) -> ForkedProcess:
        """Start a process with these three standard streams, in the directory of this process."""
        reader, writer = os.pipe()
        try:
            request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
            socket.send_fds(self._socket, [request], [*(stream.fileno() for stream in streams), writer])
        finally:
            os.close(writer)
        # Without a buffer: `select` sees what is not read yet.
        return ForkedProcess(arguments, os.fdopen(reader, "rb", buffering=0))

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], seconds: float, typed: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run a process to its end, with `typed` as its standard input.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was killed.
        """
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(typed)
            given.seek(0)
            process = self.start(arguments, environment, (given, output, errors))
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            return subprocess.CompletedProcess(list(arguments), code, _text(output), _text(errors))

    def close(self) -> None:
        """End the server and its processes, which end when its socket does."""
        self._socket.close()
        self._process.wait(scaled(10))


def server(program: str, environment: Mapping[str, str], user: tuple[str, ...] = ()) -> ForkServer:
    """Return the server whose processes start as a new interpreter in `environment` would, by the command `user`."""
    return _server(program, frozenset(startup(environment).items()), user)


@cache
def _server(program: str, started: frozenset[tuple[str, str]], user: tuple[str, ...]) -> ForkServer:
    others = {name: value for name, value in os.environ.items() if name not in startup(os.environ)}
    return ForkServer(program, others | dict(started), user)


def startup(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the interpreter reads of an environment when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(STARTUP)}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


def _serve(requests: socket.socket) -> bool:
    """Fork a process for each request. Return True in each process, and False in the server when its socket ends."""
    # The pid of each process and where its answers go, by the descriptor that tells when it ends.
    running: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, answers = running.pop(ready)
                poll.unregister(ready)
                _answer(answers, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                _close(ready, answers)
                continue
            data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, _STREAMS + 1)
            if not data:
                return False
            *streams, answers = descriptors
            pid = os.fork()
            if not pid:
                requests.close()
                _close(answers, *running, *(other for _, other in running.values()))
                _become(data, streams)
                return True
            _answer(answers, pid)
            _close(*streams)
            end = os.pidfd_open(pid)
            running[end] = pid, answers
            poll.register(end, select.POLLIN)


def _answer(answers: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for the process any more
        os.write(answers, b"%d\n" % number)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _become(data: bytes, streams: Sequence[int]) -> None:
    """Take the arguments, the environment, the directory and the streams of a process."""
    arguments, environment, directory = json.loads(data)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    _close(*streams)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv[1:] = arguments


def _run(program: Callable[[], None]) -> None:
    """Run the program and end this process as the interpreter does, but for the release of all objects, one by one."""
    code = 0
    try:
        program()
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        code = end.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    its_program: Callable[[], None] = pkgutil.resolve_name(sys.argv[1])
    gc.freeze()  # a collection would copy what a process shares with the server
    if _serve(socket.socket(fileno=os.dup(0))):
        # Outside of the server's functions: an error of the program ends this process with a traceback.
        _run(its_program)
    else:
        os.killpg(0, signal.SIGKILL)
