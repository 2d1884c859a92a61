"""Runs `gkm` in forks of a process that has imported it: most of the time of a short command is its imports.

The server has one thread and reads one request at a time from the socket on its standard input: arguments, environment
and directory as JSON, with three descriptors for the standard streams. Every command is a process of its own, with its
own streams and environment; its exit status goes back. What the interpreter reads when it starts (the encoding of its
streams, the terminal) is the server's: a command that changes that needs another server, or a process from the start.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from support.host.waiting import scaled

STARTUP = ("PYTHON", "LC_", "LANG", "TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
"""Variables that the interpreter or a library reads once, by their beginnings."""
_REQUEST_BYTES = 128 << 10


class ForkServer:
    """A client of one server. Commands run one after another.

    `user` is a command that runs the server as another user, or with fewer rights: `setpriv` with its options.
    """

    def __init__(self, environment: Mapping[str, str], user: Sequence[str] = ()) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*user, sys.executable, "-m", "support.cli.fork_server"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**environment, "PYTHONPATH": ":".join(path for path in sys.path if path)},
                start_new_session=True,
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], seconds: float, typed: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, with `typed` as its standard input.

        Raises:
            subprocess.TimeoutExpired: it took longer; the server is gone with it.
        """
        with (
            self._lock,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as output,
            tempfile.TemporaryFile() as errors,
        ):
            given.write(typed)
            given.seek(0)
            request = json.dumps([list(arguments), dict(environment), str(Path.cwd())]).encode()
            socket.send_fds(self._socket, [request], [given.fileno(), output.fileno(), errors.fileno()])
            self._socket.settimeout(seconds)
            try:
                status = int(self._socket.recv(64))
            except TimeoutError as error:
                os.killpg(self._process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), seconds) from error
            return subprocess.CompletedProcess(list(arguments), status, _text(output), _text(errors))

    def close(self) -> None:
        """End the server, which ends when its socket does."""
        self._socket.close()
        self._process.wait(scaled(10))


def startup(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the interpreter reads of an environment when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(STARTUP)}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


def _serve(requests: socket.socket) -> None:
    from gkm_cli.cache.commands import COMMANDS as CACHE  # noqa: PLC0415 -- as below
    from gkm_cli.lazy_commands import load_all  # noqa: PLC0415 -- as below
    from gkm_cli.main import COMMANDS, main  # noqa: PLC0415 -- the tests' own process must not import it here

    for table in (COMMANDS, CACHE):
        load_all(table)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
        if not data:
            return
        pid = os.fork()
        if not pid:
            requests.close()
            _become(data, descriptors)
            _run(main)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _become(data: bytes, descriptors: Sequence[int]) -> None:
    """Take the arguments, the environment, the directory and the streams of a command."""
    arguments, environment, directory = json.loads(data)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv[1:] = arguments


def _run(main: Callable[[], None]) -> None:
    """Run the program and end this process as the interpreter does."""
    status = 0
    try:
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 -- a traceback is what the tests must see
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _serve(socket.socket(fileno=os.dup(0)))
