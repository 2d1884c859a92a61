"""Read files and standard input (`-`), in pieces or whole, within a limit."""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from gkm.api import config
from gkm.api.config import Config

from gkm_cli.output import UsageError
from gkm_cli.progress import progress_bars

STDIN = Path("-")
PIECE_BYTES = 1 << 20
LONG_BYTES = 128 << 20
"""Reading a longer file takes over a second, so it has a progress bar."""


def check_stdin_once(paths: Iterable[Path | None]) -> None:
    """Refuse standard input for two options: the second would read no bytes.

    Raises:
        UsageError: `-` occurs twice.
    """
    if sum(path == STDIN for path in paths) > 1:
        raise UsageError("standard input (-) is given for several options", "give files for all but one")


def name(path: Path) -> str:
    """Return the name of a file, or "standard input" for `-`, for a message."""
    return "standard input" if path == STDIN else ascii(str(path))[1:-1]


def pieces(path: Path, stage: str) -> Iterator[bytes]:
    """Yield the bytes of a file; a long file has a progress bar.

    Raises:
        OSError: the file cannot be read.
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
    """Return the bytes of a file, or of standard input for `-`.

    Raises:
        OSError: the file cannot be read.
        UsageError: the file has more than `limit` bytes.
    """
    content = b""
    for piece in pieces(path, name(path)):
        content += piece
        if len(content) > limit:
            raise UsageError(f"{name(path)} has more than {limit} bytes", "split it")
    return content


def configured(path: Path | None) -> Config:
    """Return the configuration in a file, or the default configuration without a file.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        OSError, UsageError: as `read_all`.
    """
    if path is None:
        return Config()
    return config.parse(read_all(path, config.MAX_BYTES), f"configuration {name(path)}")


def _read(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
