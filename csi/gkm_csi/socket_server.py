"""The sockets of this process, and putting them back when somebody takes them away.

Kubelet finds us by the files in its directories. Who empties these (a reset of kubelet, an eager administrator) leaves
a server that nobody can reach: it is replaced by another one on new sockets, and its last calls come to their end.

A socket is bound under a hidden name and renamed into its place: it takes the place of that of an earlier process in
one step, and what gRPC unlinks when that one ends is not ours. At the end the sockets stay. Kubelet takes a socket that
is gone for a driver that is gone, and one that refuses for a driver that comes back, which is what an upgrade is.
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

log = logging.getLogger(__name__)


class ListenError(Exception):
    """A socket cannot be made; the message says which and why."""


class GrpcServer(Protocol):
    """What is needed of a grpc.Server."""

    def start(self) -> None:
        """Begin to answer."""

    def stop(self, grace: float | None) -> Event:
        """Take no more calls; the event is set when those under way have ended, `grace` seconds later at most."""


class SocketServer:
    """Servers of the same services on the same `sockets`, one after the other; `make` makes one that is bound there."""

    def __init__(self, make_server: Callable[[], GrpcServer], sockets: Sequence[Path]) -> None:
        self._make_server = make_server
        self._sockets = sockets
        self._server: GrpcServer | None = None
        self._own_inodes: dict[Path, tuple[int, int]] = {}

    def start(self) -> None:
        """Listen.

        Raises:
            CannotListen: a socket cannot be made.
        """
        self._server = self._make_server()
        self._own_inodes = {path: _inode(path) for path in self._sockets}
        self._server.start()

    def restore(self, grace: float) -> None:
        """Listen anew if a socket is not in its place; what is being answered has `grace` seconds to end."""
        lost = [str(path) for path, ours in self._own_inodes.items() if _inode(path) != ours]
        if not lost:
            return
        log.warning("sockets have gone; listening anew", extra=fields(sockets=lost))
        before = self._server
        try:
            self.start()
        except ListenError:
            log.exception("cannot listen; trying again")
            return
        if before is not None:
            before.stop(grace)

    def stop(self, grace: float) -> None:
        """End when the calls under way have ended, after `grace` seconds at most."""
        if self._server is not None:
            self._server.stop(grace).wait()


def remove_leftovers(directory: Path) -> None:
    """Remove what killed processes of ours left between binding and renaming."""
    for leftover in directory.glob(f"{_TEMPORARY_PREFIX}*"):
        if leftover.is_socket():
            leftover.unlink(missing_ok=True)


def check_socket_path(path: Path) -> None:
    """Accept a place where nothing is, or a socket that may be replaced.

    Raises:
        FileExistsError: something else is there, which is not ours to remove.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise FileExistsError(errno.EEXIST, "something that is no socket is in the way", str(path))


def temporary_path(path: Path, number: int) -> Path:
    """Return a name beside `path` that kubelet passes over, to bind the socket of that number to at first."""
    return path.with_name(f"{_TEMPORARY_PREFIX}{os.getpid()}.{number}")


_TEMPORARY_PREFIX: Final = ".gkm-"


def _inode(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:  # gone, or a file has taken the place of its directory: both are lost sockets
        return (0, 0)
    return (status.st_dev, status.st_ino)
