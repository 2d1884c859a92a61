"""From a tar stream to a directory: names checked first, bounds kept, every file hashed on its way to the disk."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.images.archive import Member, Stream, members
from gkm.images.cache import Format
from gkm.images.entry import ListedFile
from gkm.images.inflate import inflated

MAX_FILES = 200_000
"""A real cache of 1 GB has 15,000; each costs memory here, in the file list, and an inode on every node."""
MAX_PATHS_BYTES = 32 << 20
"""Bound of all paths together: 300,000 long ones took the agent past its memory limit."""
MAX_DEPTH = 16
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255
MAX_MANIFEST_BYTES = 16 << 20
FILE_MODE, EXECUTABLE_MODE = 0o444, 0o555


@dataclass(slots=True)
class Extraction:
    """An extraction under way into an empty directory that nobody else knows."""

    destination: Path
    format: Format
    max_bytes: int
    files: list[ListedFile] = field(default_factory=list)
    manifest: bytes = b""
    size_bytes: int = 0
    _made: set[str] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)
    _path_bytes: int = 0

    def layer(self, parts: Iterable[bytes]) -> None:
        """Extract one layer. What lies outside the cache's directory in the layer is checked and passed over.

        Raises:
            GKMError: UNSAFE_CONTENT, TOO_LARGE, CONTENT_MISMATCH.
            OSError: the disk refused.
        """
        for member, content in members(Stream(inflated(parts))):
            path = checked_path(member.name)
            if path == self.format.manifest_path and not member.directory:
                self.manifest = self._small(member, content)
                continue
            directory, _, inside = path.partition("/")
            if directory != self.format.content_directory or not inside:
                continue
            if member.directory:
                self._directory(inside)
            else:
                self._file(inside, member, content)

    def _small(self, member: Member, content: Iterator[memoryview]) -> bytes:
        if member.size > MAX_MANIFEST_BYTES:
            raise GKMError(Reason.TOO_LARGE, f"the cache manifest in the image has {member.size} bytes")
        return b"".join(content)

    def _directory(self, path: str) -> None:
        if path in self._made:
            return
        if path in self._names:
            raise _conflict(path)
        parent, _, _ = path.rpartition("/")
        if parent:
            self._directory(parent)
        self._count(path)
        self._made.add(path)
        (self.destination / path).mkdir()

    def _file(self, path: str, member: Member, content: Iterator[memoryview]) -> None:
        if path in self._names:
            raise _conflict(path)
        parent, _, _ = path.rpartition("/")
        if parent:
            self._directory(parent)
        self._count(path)
        self.size_bytes += member.size
        if self.size_bytes > self.max_bytes:
            raise GKMError(Reason.TOO_LARGE, f"the cache is larger than the {self.max_bytes} bytes that are allowed")
        hasher = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = EXECUTABLE_MODE if member.executable else FILE_MODE
        descriptor = os.open(self.destination / path, flags, mode)
        try:
            for piece in content:
                hasher.update(piece)
                _write(descriptor, piece)
            os.fchmod(descriptor, mode)  # whatever the umask was
        finally:
            os.close(descriptor)
        self.files.append(ListedFile(path, member.size, hasher.hexdigest(), member.executable))

    def _count(self, path: str) -> None:
        self._names.add(path)
        self._path_bytes += len(path)
        if len(self._names) > MAX_FILES:
            raise GKMError(Reason.TOO_LARGE, f"the cache has more than {MAX_FILES} files and directories")
        if self._path_bytes > MAX_PATHS_BYTES:
            raise GKMError(Reason.TOO_LARGE, f"the paths in the cache are longer than {MAX_PATHS_BYTES} bytes together")


def checked_path(name: bytes) -> str:
    """Return the name of a member as a relative path without dots.

    Raises:
        GKMError: UNSAFE_CONTENT for any name that could lead out, hide, or confuse a terminal.
    """
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unsafe(name, "is not UTF-8") from error
    if len(name) > MAX_PATH_BYTES:
        raise _unsafe(name, f"is longer than {MAX_PATH_BYTES} bytes")
    if text.startswith("/"):
        raise _unsafe(name, "is absolute")
    if not text.isprintable():
        raise _unsafe(name, "has characters that cannot be printed")
    parts = [part for part in text.removesuffix("/").split("/") if part != "."]
    for part in parts:
        if part in ("", ".."):
            raise _unsafe(name, "leads elsewhere")
        if len(part.encode()) > MAX_NAME_BYTES:
            raise _unsafe(name, f"has a part longer than {MAX_NAME_BYTES} bytes")
        if part.startswith(".wh."):
            raise _unsafe(name, "is a whiteout: a layer would hide another's files")
    if len(parts) > MAX_DEPTH:
        raise _unsafe(name, f"is deeper than {MAX_DEPTH} directories")
    return "/".join(parts)


def _write(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def _unsafe(name: bytes, why: str) -> GKMError:
    return GKMError(
        Reason.UNSAFE_CONTENT, f"the image holds a name that {why}: {name[:80].decode('utf-8', 'replace')!r}"
    )


def _conflict(path: str) -> GKMError:
    return GKMError(Reason.UNSAFE_CONTENT, f"the image holds {path[:80]!r} twice")
