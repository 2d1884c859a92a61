"""Locks on store entries, shared by publishes and exclusive for garbage collection; and the lock of a process.

They are flock(2) on files, because agent and CSI process are separate containers that share only a file system. The
kernel releases the locks of a process that ends.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

_POLL_SECONDS = 0.1


class LockBusy(Exception):
    """Another process holds the lock in a mode that excludes this one."""


def shared(path: Path) -> AbstractContextManager[None]:
    """Take a shared lock on `path`, or fail at once: a publish never waits, because kubelet repeats its call.

    Raises:
        LockBusy: garbage collection holds the lock.
    """
    return _flock(path, fcntl.LOCK_SH | fcntl.LOCK_NB)


def exclusive(path: Path) -> AbstractContextManager[None]:
    """Take an exclusive lock on `path`, or fail at once.

    Raises:
        LockBusy: a publish or another collection holds the lock.
    """
    return _flock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def process_lock(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of a process at `path`; wait up to `seconds` for the previous process to end.

    Raises:
        LockBusy: another process still holds the lock.
    """
    deadline = time.monotonic() + seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive(path))
                break
            except LockBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)
        yield


def shared_beyond_exec(path: Path) -> None:
    """Take a shared lock on `path` that this process keeps until it ends, also across execve(2).

    Its descriptor stays open; children inherit it unless they close what they did not ask for.

    Raises:
        LockBusy: garbage collection holds the lock.
    """
    os.set_inheritable(_locked(path, fcntl.LOCK_SH | fcntl.LOCK_NB), True)  # noqa: FBT003 -- no keyword there


@contextmanager
def _flock(path: Path, operation: int) -> Iterator[None]:
    descriptor = _locked(path, operation)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path, operation: int) -> int:
    """Return an open descriptor that holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    is_held = False
    try:
        fcntl.flock(descriptor, operation)
        # Between open and flock, garbage collection may have removed the lock file with the entry.
        is_held = _is_same_file(path, descriptor)
    except BlockingIOError as error:
        raise LockBusy(path.name) from error
    finally:
        if not is_held:
            os.close(descriptor)
    if not is_held:
        raise LockBusy(path.name)
    return descriptor


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
