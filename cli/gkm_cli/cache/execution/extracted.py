"""A cache without mounts: a directory of hard links to read, or a private copy to write in, with paths of its own.

Only modes protect the links. A program that they do not bind, as root in a container, always gets a private copy.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from gkm.hoststate import files, trees
from gkm.images.pulling import entry
from gkm.mounts.relocation.mount_path import MountPath

from gkm_cli.cache.execution.run_store import RunStore
from gkm_cli.cache.relocation import relocate

_SEALED, _SEALED_FILE = 0o555, 0o444
_OPEN, _OPEN_FILE = 0o755, 0o644
_EXECUTABLE = 0o100


def can_share(store: RunStore, digest: str) -> bool:
    """Return whether the modes of sealed directories bind this process: not root, not CAP_DAC_OVERRIDE."""
    return not os.access(store.layout.entry(digest) / entry.CONTENT, os.W_OK, effective_ids=True)


def view(store: RunStore, digest: str) -> Path:
    """Return a directory with the cache, for reading: made once, and shared by all runs.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is not that of a cache.
        CommandFailed: another run takes too long.
        OSError: the disk refused.
    """
    path = store.view(digest)
    content = path / entry.CONTENT
    if not content.exists():
        with store.building():
            work = _build(store, digest, content, os.link, _SEALED_FILE)
            _seal(str(work / entry.CONTENT))
            files.sync_file_system(work)
            _publish(store, work, path)
    return content


def private_copy(store: RunStore, digest: str) -> Path:
    """Return a directory with a copy of the cache, which ends with the program.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is not that of a cache.
        CommandFailed: another run takes too long.
        OSError: the disk refused.
    """
    path = store.new_copy(digest)
    with store.building():
        _build(store, digest, path / entry.CONTENT, _copy, _OPEN_FILE).rename(path)
    return path / entry.CONTENT


def _build(store: RunStore, digest: str, path: Path, transfer: Callable[[str, str], object], mode: int) -> Path:
    """Return a new directory with the content in CONTENT, which will be `path`, by `transfer` of each file."""
    work = store.layout.work / f"{store.layout.entry(digest).name[:12]}-{secrets.token_hex(8)}"
    work.mkdir(_OPEN)
    _transfer(str(store.layout.entry(digest) / entry.CONTENT), str(work / entry.CONTENT), transfer)
    relocate(work / entry.CONTENT, work / "relocated", MountPath(str(path)), mode)
    trees.remove(work / "relocated")
    return work


def _publish(store: RunStore, work: Path, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        work.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        store.discard(work)  # another run was faster


def _transfer(source: str, destination: str, transfer: Callable[[str, str], object]) -> None:
    os.mkdir(destination, _OPEN)  # noqa: PTH102 -- one of thousands: no path object for each
    with os.scandir(source) as found:
        for one in found:
            below = f"{destination}/{one.name}"
            if one.is_dir(follow_symlinks=False):
                _transfer(one.path, below, transfer)
            else:
                transfer(one.path, below)


def _copy(source: str, destination: str) -> None:
    """Copy a file: the program may write in it, and the original is that of every other run."""
    shutil.copy(source, destination, follow_symlinks=False)
    is_executable = os.lstat(destination).st_mode & _EXECUTABLE
    os.chmod(destination, _OPEN if is_executable else _OPEN_FILE)  # noqa: PTH101 -- as above


def _seal(directory: str) -> None:
    """Remove the write permission of directories; the files are links to sealed ones, or sealed."""
    with os.scandir(directory) as found:
        for one in found:
            if one.is_dir(follow_symlinks=False):
                _seal(one.path)
    os.chmod(directory, _SEALED)  # noqa: PTH101 -- as above
