"""Special files, as a hostile pod may leave them."""

import os
import socket
from pathlib import Path

import pytest


def make_socket(path: Path) -> None:
    """Make a socket at `path`."""
    # Bound by a short name: the path of a test may be longer than a socket's may be.
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    """Make a device with endless content at `path`."""
    if os.geteuid() != 0:
        pytest.skip("a device node needs root")
    os.mknod(path, 0o020600, os.makedev(1, 5))  # /dev/zero
