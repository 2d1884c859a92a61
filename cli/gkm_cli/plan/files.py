"""The bytes of files and of standard input (`-`), in pieces or whole, and never more than asked for."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from gkm_cli.output import UsageError
from gkm_cli.progress import progress_bars

STDIN = Path("-")
PIECE_BYTES = 1 << 20
LONG_BYTES = 128 << 20
"""What takes over a second to read has a bar."""


def check_stdin_once(paths: Iterable[Path]) -> None:
    """Refuse standard input for two things: the second would be empty.

    Raises:
        WrongUsage: it is.
    """
    if sum(path == STDIN for path in paths) > 1:
        raise UsageError("standard input (-) is given for several things", "give a file for all but one")


def name(path: Path) -> str:
    """Return what a file is called in a sentence."""
    return "standard input" if path == STDIN else ascii(str(path))[1:-1]


def pieces(path: Path, stage: str) -> Iterator[bytes]:
    """Yield the bytes of a file; where there are many, a terminal sees how far it is.

    Raises:
        OSError: it cannot be read.
    """
    if path == STDIN:
        yield from _read(sys.stdin.buffer)
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno())
        if not stat.S_ISREG(size.st_mode) or size.st_size < LONG_BYTES:
            yield from _read(file)
            return
        with progress_bars(stage) as report:
            done = 0
            for piece in _read(file):
                yield piece
                done += len(piece)
                report(stage, done, size.st_size)


def read_all(path: Path, limit: int) -> bytes:
    """Return the bytes of a file.

    Raises:
        OSError: it cannot be read.
        WrongUsage: there are more than `most`.
    """
    found = b""
    for piece in pieces(path, name(path)):
        found += piece
        if len(found) > limit:
            raise UsageError(f"{name(path)} has more than the {limit} bytes that are read", "split it")
    return found


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
