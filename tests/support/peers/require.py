"""For tests: what this machine must have. Missing means skipped, in one line; with CI=true it means failed.

Root is the exception: a run without root leaves tests out, and names each at its end (tests/conftest.py).
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from support.peers import build as peers
from support.peers import tiers
from support.peers.missing import Missing


def absent(what: str) -> NoReturn:
    """Skip the test because `what` is not here, or fail it where nothing may be absent."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"CI=true allows no missing partner: {what}", pytrace=False)
    pytest.skip(what)


def linux() -> None:
    if sys.platform != "linux":
        absent("needs Linux")


def root() -> None:
    """Leave the test out for a user that is not root, also with CI=true: the end of the run names it."""
    linux()
    if os.geteuid() != 0:
        pytest.skip("needs root")


def command(name: str, package: str) -> Path:
    """Return the path of a command of the machine; the first tiers have gcc only."""
    tiers.check(name)
    found = shutil.which(name)
    return Path(found) if found else absent(f"needs {name} (Debian: {package})")


def gcc() -> Path:
    return command("gcc", "gcc")


def containerd() -> None:
    """Everything a node needs besides the partners; installed by scripts/debian-packages."""
    root()
    command("containerd", "containerd")
    command("runc", "runc")
    command("ip", "iproute2")
    command("busybox", "busybox-static")
    if not Path("/usr/lib/cni/bridge").exists():
        absent("needs /usr/lib/cni/bridge (Debian: containernetworking-plugins)")


def peer(name: str) -> Path:
    """Return a partner's command, building it when needed."""
    with absences():
        return peers.binary(name)


@contextmanager
def absences() -> Iterator[None]:
    """Turn the testbed's own `Missing` into skipped or failed."""
    try:
        yield
    except Missing as missing:
        absent(str(missing))
