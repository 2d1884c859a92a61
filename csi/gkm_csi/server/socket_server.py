"""The sockets of this process, and listening again after another process has removed them.

Kubelet finds this driver by the sockets in its directories. When these are emptied (a reset of kubelet, an
administrator), the server is unreachable: a new server on new sockets replaces it, and the old one finishes its calls.

A socket is bound under a hidden name and renamed: it replaces the socket of an earlier process in one step, and the
file that gRPC unlinks at the end of that process is not the new one. At the end of this process the sockets stay:
kubelet takes a missing socket for a removed driver, and a socket that refuses connections for a driver that restarts,
as in an upgrade.
"""

import errno
import logging
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Final, Protocol

from gkm.hoststate.logs import fields

CHECK_SECONDS: Final = 5.0

_LOG = logging.getLogger(__name__)


class ListenError(Exception):
    """A socket cannot be bound; the message names the path and the cause."""


class GrpcServer(Protocol):
    """The part of grpc.Server that SocketServer uses."""

    def start(self) -> None:
        """Start to serve."""

    def stop(self, grace: float | None) -> Event:
        """Refuse new calls; the event is set when all calls have ended, after `grace` seconds at most."""


class SocketServer:
    """A server on `sockets`, replaced by a new one when a socket is gone; `make_server` returns a bound server."""

    def __init__(self, make_server: Callable[[], GrpcServer], sockets: Sequence[Path]) -> None:
        self._make_server = make_server
        self._sockets = sockets
        self._server: GrpcServer | None = None
        self._own_inodes: dict[Path, tuple[int, int]] = {}

    def start(self) -> None:
        """Listen.

        Raises:
            ListenError: a socket cannot be bound.
        """
        self._server = self._make_server()
        self._own_inodes = {path: _inode(path) for path in self._sockets}
        self._server.start()

    def restore(self, grace: float) -> None:
        """Listen again if a socket is missing or replaced; calls in progress have `grace` seconds to end."""
        missing = [str(path) for path, ours in self._own_inodes.items() if _inode(path) != ours]
        if not missing:
            return
        _LOG.warning("sockets missing, listening again", extra=fields(sockets=missing))
        previous = self._server
        try:
            self.start()
        except ListenError:
            _LOG.exception("listen failed, will retry")
            return
        if previous is not None:
            previous.stop(grace)

    def stop(self, grace: float) -> None:
        """Return when the calls in progress have ended, after `grace` seconds at most."""
        if self._server is not None:
            self._server.stop(grace).wait()


def remove_leftovers(directory: Path) -> None:
    """Remove sockets that killed processes left between binding and renaming."""
    for leftover in directory.glob(f"{_TEMPORARY_PREFIX}*"):
        if leftover.is_socket():
            leftover.unlink(missing_ok=True)


def check_socket_path(path: Path) -> None:
    """Accept a path without a file, or with a socket that may be replaced.

    Raises:
        FileExistsError: another kind of file is there, which this driver must not remove.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "a file that is not a socket is in the way", str(path))


def temporary_path(path: Path, number: int) -> Path:
    """Return a hidden name beside `path`, which kubelet ignores, for binding socket `number`."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}.{number}")


_TEMPORARY_PREFIX: Final = ".gkm-"


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:  # missing, or its directory was replaced by a file
        return (0, 0)
    return (status.st_dev, status.st_ino)
