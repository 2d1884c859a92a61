"""How a program of `gkm exec` sees its cache: a mount, a shared directory of hard links, or a private copy.

Every step can be killed: what it leaves is either complete or removed by the next run. Mounts belong to a namespace
that ends with the program. Where mounting is not possible, the cache is a directory of hard links to read, which only
modes protect, or a private copy to write in; a program that modes do not bind, as root in a container, always gets a
private copy.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import files, trees
from gkm.hoststate.files import closing
from gkm.images.pulling import entry
from gkm.mounts import overlay, safe_open, syscalls
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_store import RelocationLayer
from gkm.mounts.relocation.tree_writer import Unrelocatable

from gkm_cli.cache.extraction import relocate
from gkm_cli.cache.run_store import RunStore, retried_while_busy

_SEALED_FILE = 0o444
_OPEN, _OPEN_FILE = 0o755, 0o644
_EXECUTABLE = 0o100


def can_mount() -> bool:
    """Return whether this process may mount file systems in a new mount namespace."""
    return os.geteuid() == 0 and not overlay.missing_features()


def mount(store: RunStore, digest: str, private_bytes: int | None) -> Path:
    """Enter a new mount namespace and return the path of the cache in it.

    It is read-only; with `private_bytes` it has a private layer of that size on top, in memory, which ends with it.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: a system call failed.
    """
    layout = store.layout
    point = store.mounts / layout.entry(digest).name
    point.mkdir(exist_ok=True)
    layer = RelocationLayer(MountPath(str(point)), is_writable=private_bytes is not None)
    # Before anything is opened: a layer must be in the namespace of the overlay (EINVAL otherwise).
    syscalls.enter_private_mounts()
    with ExitStack() as stack:
        relative = layout.entry(digest).relative_to(layout.state) / entry.CONTENT
        content = stack.enter_context(safe_open.open_directory(layout.state, str(relative)))
        tree = _relocated(content, layer, store.trees(digest))
        top = stack.enter_context(safe_open.open_directory(layout.state, str(tree.relative_to(layout.state))))
        empty = stack.enter_context(safe_open.open_directory(layout.state, layout.empty.name))
        target = stack.enter_context(closing(os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)))
        if private_bytes is None:
            overlay.mount_read_only((top, content, empty), target, f"gkm-exec:{digest}")
        else:
            # One directory for all runs: what is mounted on it is in the namespace of one.
            scratch = layout.run / "layer"
            overlay.mount_private(
                (top, content, empty), target, f"gkm-exec:{digest}", scratch=scratch, size=private_bytes
            )
    return point


def _relocated(content: int, layer: RelocationLayer, trees: Path) -> Path:
    try:
        return retried_while_busy(lambda: tree_store.relocate(content, layer, trees))
    except Unrelocatable as error:
        raise GKMError(Reason.UNSAFE_CONTENT, f"the paths in the cache cannot be rewritten: {error}") from error


def can_share(store: RunStore, digest: str) -> bool:
    """Return whether the modes of sealed directories bind this process: not root, not CAP_DAC_OVERRIDE."""
    return not os.access(store.layout.entry(digest) / entry.CONTENT, os.W_OK, effective_ids=True)


def view(store: RunStore, digest: str) -> Path:
    """Return a directory with the cache for reading, made once and shared by all runs.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: a disk operation failed.
    """
    path = store.view(digest)
    content = path / entry.CONTENT
    if not content.exists():
        with store.building():
            work = _build(store, digest, content, os.link, _SEALED_FILE)
            entry.seal(str(work / entry.CONTENT))
            files.sync_file_system(work)
            _publish(store, work, path)
    return content


def private_copy(store: RunStore, digest: str) -> Path:
    """Return a directory with a private copy of the cache, which ends with the program.

    Raises:
        GKMError: UNSAFE_CONTENT: the content is no cache.
        CommandFailed: another run takes too long.
        OSError: a disk operation failed.
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
    """Copy a file: the program may write in it, and all other runs share the original."""
    shutil.copy(source, destination, follow_symlinks=False)
    is_executable = os.lstat(destination).st_mode & _EXECUTABLE
    os.chmod(destination, _OPEN if is_executable else _OPEN_FILE)  # noqa: PTH101 -- as above
