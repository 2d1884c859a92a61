"""Walks the content of a cache and writes what goes on top of it: rewritten files, and directories to write in.

The content comes from an image. Its directories are opened one name at a time beneath a descriptor and never through a
link, and everything is bounded, although extraction has refused links and larger trees before: this process must not
depend on what another one checked.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gkm.mounts import relocation_files, relocation_triton, relocation_vllm
from gkm.mounts.relocation_paths import MountPath
from gkm.mounts.relocation_rewritten import Rewritten

MAX_ENTRIES: Final = 1_000_000
"""As many files and directories as extraction admits, and then as deep and as long in its paths."""
MAX_DEPTH: Final = 16
MAX_PATH_BYTES: Final = 1024
MAX_REWRITTEN: Final = 100_000

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Unrelocatable(Exception):
    """The content is not what a sealed entry of the store can hold; nothing may be concluded from a part of it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many files name paths, one for each kernel; `incomplete` of them name what is not there: those are misses."""

    rewritten: int
    incomplete: int


def write(content: int, destination: Path, mount_path: MountPath | None, *, is_open: bool = False) -> Counts:
    """Write the files of `content` (a descriptor) that name paths, for `mount_path`, into the new `destination`.

    The same content and path give the same files, byte by byte. Every such file has its counterpart, so that no
    original one shows through; without a path none has. With `is_open` every directory has its counterpart too, in
    which anybody may write.

    Raises:
        Unrelocatable: the content holds links or special files, or is larger than any cache.
        OSError: it cannot be read, or `destination` cannot be written.
    """
    walk = _Walk(destination, mount_path, is_open=is_open)
    walk.made("")
    top = os.open(".", _DIRECTORY, dir_fd=content)
    try:
        walk.directory(top, "")
    finally:
        os.close(top)
    return Counts(walk.rewritten, walk.incomplete)


@dataclass(slots=True)
class _Listing:
    """The names in one directory: `naming` are the files that name paths, in neither of the others."""

    naming: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)


class _Walk:
    def __init__(self, destination: Path, mount_path: MountPath | None, *, is_open: bool) -> None:
        self.rewritten = 0
        self.incomplete = 0
        self._entries = 0
        self._destination = destination
        self._mount_path = mount_path
        self._is_open = is_open

    def made(self, relative: str) -> Path:
        """Return the counterpart of a directory, making it where it is missing."""
        mode = relocation_files.OPEN_MODE if self._is_open else relocation_files.DIRECTORY_MODE
        return relocation_files.made(self._destination, relative, mode)

    def directory(self, descriptor: int, relative: str) -> None:
        """Rewrite the files of one directory, then those beneath it; `relative` is its path, "" for the top."""
        listing = self._listed(descriptor, relative)
        if self._is_open:
            self.made(relative)
        if listing.naming and self._mount_path is not None:
            self._rewrite(descriptor, relative, listing, self._mount_path)
        for name in listing.directories:
            below = os.open(name, _DIRECTORY, dir_fd=descriptor)
            try:
                self.directory(below, _joined(relative, name))
            finally:
                os.close(below)

    def _listed(self, descriptor: int, relative: str) -> _Listing:
        listing = _Listing()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                self._count(relative, entry.name)
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_directory and not entry.is_file(follow_symlinks=False):
                    raise Unrelocatable(f"{_shown(relative, entry.name)} is neither a file nor a directory")
                if entry.name == relocation_vllm.NAME or entry.name.startswith(relocation_triton.PREFIX):
                    listing.naming.append(entry.name)  # a directory of such a name is hidden by a file, not entered
                elif is_directory:
                    listing.directories.append(entry.name)
                else:
                    listing.files.add(entry.name)
        return listing

    def _count(self, relative: str, name: str) -> None:
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise Unrelocatable(f"the cache holds more than {MAX_ENTRIES} files and directories")
        path = _joined(relative, name)
        if path.count("/") >= MAX_DEPTH or len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise Unrelocatable(f"{_shown(relative, name)} lies too deep")

    def _rewrite(self, descriptor: int, relative: str, listing: _Listing, mount_path: MountPath) -> None:
        self.rewritten += len(listing.naming)
        if self.rewritten > MAX_REWRITTEN:
            raise Unrelocatable(f"more than {MAX_REWRITTEN} files of the cache name paths")
        place = self.made(relative)
        inside = _joined(mount_path.text, relative) if relative else mount_path.text
        for name in listing.naming:
            result = _rewritten(descriptor, name, inside, listing)
            self.incomplete += not result.complete
            relocation_files.write(place / name, result.data)


def _rewritten(descriptor: int, name: str, inside: str, listing: _Listing) -> Rewritten:
    if name == relocation_vllm.NAME:
        data = relocation_files.read(descriptor, name, relocation_vllm.MAX_BYTES)
        return relocation_vllm.rewritten(data, inside, listing.files.union(listing.directories))
    data = relocation_files.read(descriptor, name, relocation_triton.MAX_BYTES)
    return relocation_triton.rewritten(data, inside, listing.files)


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _shown(relative: str, name: str) -> str:
    return ascii(_joined(relative, name)[:80])
