"""Read small files, and replace them so that a reader sees the old content or the new one, never a part of it."""

import ctypes
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

_T = TypeVar("_T")

MAX_BYTES = 4 << 20
"""No record, pointer or usage file of GKM is larger; another program wrote a larger one."""
READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to read a file that others can replace: no link is followed, and a pipe does not block."""
READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to write a file that must not exist."""
PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of a read that tell nothing about the file: this process or the machine lacks descriptors or memory now."""


class UnreadableState(ValueError):
    """A state file exists and is damaged; the message names the file and the cause.

    An error in PASSING is no damage: it stays an OSError, and the state stays as it is.
    """


def replace(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Replace the file at `path` with `data` atomically; create its directory if needed.

    `durable` costs two fsyncs and is for files that must survive a power cut; files below /run do not need it. The
    umask restricts `mode`.

    Raises:
        OSError: a write failed; the old content stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def temporaries(path: Path) -> Iterator[Path]:
    """Yield the temporary files that interrupted writes of `path` left."""
    return path.parent.glob(f".{path.name}.*.tmp")


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close an open descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that its names survive a power cut."""
    with closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
        os.fsync(descriptor)


def sync_file_system(path: Path) -> None:
    """Sync all files on the file system of `path` with one syncfs(2), so that they survive a power cut.

    Raises:
        OSError: a disk operation failed.
    """
    with closing(os.open(path, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))


def remove_empty(directory: Path, levels: int = 1) -> None:
    """Remove a directory and its parents, `levels` in all, as far as they are empty.

    Failures are ignored: an empty directory has no meaning, and the next removal tries again.
    """
    for empty in (directory, *directory.parents)[:levels]:
        try:
            empty.rmdir()
        except OSError:
            return


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory, sorted. Unlike a glob it never takes an unreadable directory for an empty one.

    Raises:
        OSError: the directory does not exist, is not a directory, or cannot be read.
    """
    return sorted(path.name for path in directory.iterdir())


def open_regular(path: Path) -> BinaryIO:
    """Return a regular file, open for reading; links are not followed.

    Raises:
        FileNotFoundError: no such file exists.
        OSError: it cannot be opened now (PASSING).
        UnreadableState: it cannot be opened, or is not a regular file.
    """
    try:
        descriptor = os.open(path, READ_FILE)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in PASSING:
            raise
        raise UnreadableState(f"{path}: {error.strerror}") from error
    # os.fdopen refuses a directory and leaves its descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableState(f"{path}: not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `limit` bytes; links are not followed.

    Raises:
        FileNotFoundError: no such file exists.
        OSError: it cannot be read now (PASSING).
        UnreadableState: it is too large, or not a regular file.
    """
    with open_regular(path) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            if error.errno in PASSING:
                raise
            raise UnreadableState(f"{path}: {error.strerror}") from error
    if len(data) > limit:
        raise UnreadableState(f"{path}: larger than {limit} bytes")
    return data


def read_object(path: Path, limit: int = MAX_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        FileNotFoundError: no such file exists.
        OSError: it cannot be read now (PASSING).
        UnreadableState: it is not a JSON object.
    """
    data = read_bounded(path, limit)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableState(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableState(f"{path}: not a JSON object")
    return value


def load(path: Path, decode: Callable[[Mapping[str, Any]], _T], limit: int = MAX_BYTES) -> _T | None:
    """Return the decoded JSON object in a state file, None without a file.

    Raises:
        OSError: the file cannot be read now (PASSING).
        UnreadableState: the file exists and is invalid; `decode` refuses a value by any of the errors below.
    """
    try:
        return decode(read_object(path, limit))
    except FileNotFoundError:
        return None
    except UnreadableState:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise UnreadableState(f"{path}: {type(error).__name__}: {str(error)[:200]}") from error


def encode(value: Mapping[str, Any]) -> bytes:
    """Return `value` as JSON for a state file: readable, and always the same bytes for the same value."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
