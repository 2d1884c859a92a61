"""files.json, the list of the files that an entry of the store must hold, which may be 200,000.

It is one JSON object that ends with the list, one file on each line. So a writer or reader needs the memory of one
line: the list of the largest cache took 150 MiB in memory.
"""

import os
import tempfile
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from gkm.hoststate.files import PASSING, UnreadableState, open_regular

MAX_LINE_BYTES = 16 << 10
"""A path has at most 1,024 bytes; as JSON each may take six."""
_IN_MEMORY_BYTES = 1 << 20
_END = b"]}\n"


class ListedFile(Struct, frozen=True, omit_defaults=True):
    """One file of a store entry in files.json: `path` relative to the cache, `size` in bytes."""

    path: str
    size: int
    sha256: str
    executable: bool = False


class FileList(Struct, frozen=True, rename="camel"):
    """The header of files.json, the list by which the agent detects changed files of an entry."""

    digest: str
    format: str
    size_bytes: int
    files: Collection[ListedFile]


class SpooledFileList(Collection[ListedFile]):
    """Collects the files of an extraction in order; beyond 1 MiB the list is kept on the disk of `directory`."""

    def __init__(self, directory: Path) -> None:
        # It has no name on the disk. The error of a refused image may hold it in a cycle: it closes with this object.
        self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=str(directory))  # noqa: SIM115
        weakref.finalize(self, self._spool.close)
        self._count = 0
        self._at_end = True

    def append(self, file: ListedFile) -> None:
        """Add a file; raises OSError when the disk refuses."""
        if not self._at_end:  # a seek, even to the same position, would flush the buffer for every file
            self._spool.seek(0, os.SEEK_END)
            self._at_end = True
        self._spool.write(msgspec.json.encode(file) + b"\n")
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ListedFile]:
        self._spool.seek(0)
        self._at_end = False
        for line in self._spool:
            yield msgspec.json.decode(line, type=ListedFile)

    def __contains__(self, file: object) -> bool:
        return any(file == listed for listed in self)


def write(path: Path, listed: FileList) -> None:
    """Write the file list of a store entry to the new file `path`.

    Raises:
        OSError: a disk operation failed.
    """
    with path.open("xb") as file:
        head = msgspec.json.encode(FileList(listed.digest, listed.format, listed.size_bytes, []))
        file.write(head.removesuffix(b"]}"))
        separator = b"\n"
        for listed_file in listed.files:
            file.write(separator + msgspec.json.encode(listed_file))
            separator = b",\n"
        file.write(b"\n" + _END)


def read(path: Path) -> tuple[FileList, int]:
    """Return the header of a file list, and the number of its files; check every line. Does not follow links.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it cannot be read now (PASSING).
        UnreadableState: `write` did not write this file.
    """
    with open_list(path) as (head, files):
        return head, sum(1 for _ in files)


@contextmanager
def open_list(path: Path) -> Iterator[tuple[FileList, Iterator[ListedFile]]]:
    """Yield the header of a file list, and an iterator over its files; raises and checks as `read` does."""
    with open_regular(path) as file:
        try:
            head = msgspec.json.decode(_line(file) + b"]}", type=FileList)
            yield head, _files(file)
        except OSError as error:
            if error.errno in PASSING:
                raise
            raise UnreadableState(f"{path}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise UnreadableState(f"{path}: {error}") from error


def _files(file: BinaryIO) -> Iterator[ListedFile]:
    count, more = 0, True
    while (line := _line(file)) != _END:
        if not more:
            raise ValueError("a line follows its last file")
        more = line.endswith(b",\n")
        yield msgspec.json.decode(line.removesuffix(b"\n").removesuffix(b","), type=ListedFile)
        count += 1
    if file.read(1) or (more and count):
        raise ValueError("it goes on after the end of the list")


def _line(file: BinaryIO) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ValueError("a line is too long or truncated")
    return line
