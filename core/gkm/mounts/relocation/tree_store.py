"""The relocated trees of a cache: written once for a digest and a layer, shared by every volume that needs it.

A tree holds the few files that contain absolute paths, rewritten for one mount path, and directories to write in. It is
written under a temporary name and appears by one rename; the next writer removes the temporary directory of a process
that died. No file is synced to disk: a tree is valid only in the boot that wrote it, because after a power cut a
damaged tree looks like a good one, and writing it again is faster than a sync. No mount of an earlier boot uses it.

So a tree needs no disk: it lies in memory, on the tmpfs of /run. A disk takes ten times as long for the same thousands
of inodes. The memory is bounded; the trees beyond it lie on the disk.
"""

import errno
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import files, locks, trees
from gkm.hoststate.files import UnreadableState
from gkm.mounts.relocation import tree_writer
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_limits import MAX_TREES, Uses, check_all, check_share

_TREE_DIRECTORY: Final = "tree"
_METADATA_FILE: Final = "made.json"
_LOCK_FILE: Final = ".lock"
_TEMPORARY_PREFIX: Final = ".tmp-"
_FORMAT: Final = 1
"""Format version of trees; it is raised when the same input gives other files, so that old trees are not used."""
_NOT_OURS: Final = (errno.ENOTDIR, errno.ELOOP)
"""Errors of a path that no writer of trees makes."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES: Final = 16 << 10

MAX_CONCURRENT: Final = 2
"""Trees that one process writes at a time. The largest that an image may need takes minutes, and the caller has few
threads: further callers get an error and repeat their call, and other calls are served meanwhile."""
MAX_TREE_MEMORY: Final = 16 << 20
"""Limit of bytes of one tree in memory, enough for 2,700 kernels of Triton."""
MAX_MEMORY: Final = 64 << 20
"""Limit of bytes of all trees in memory; they are charged to the CSI driver's container."""
_slots: Final = threading.BoundedSemaphore(MAX_CONCURRENT)
_eviction: Final = threading.Lock()
"""Held while unused trees get a temporary name. A volume waits for it before it looks for a tree, and has a record
before: so an eviction sees the record, or the volume finds no tree."""


class RelocationInProgress(Exception):
    """Another call writes a tree of the same cache, or too many trees are being written; retry."""


@dataclass(frozen=True, slots=True)
class RelocationLayer:
    """Which tree a volume needs: for `mount_path` (None if not given); with `is_writable` it has every directory."""

    mount_path: MountPath | None
    is_writable: bool = False

    @property
    def key(self) -> str:
        """Return the directory name of the tree, equal on every node and in every version."""
        path = self.mount_path.key if self.mount_path else "anywhere"
        return f"{path}-open" if self.is_writable else path


def relocate(
    content: int, layer: RelocationLayer, root: Path, in_use: Callable[[], Uses] = Uses, memory: Path | None = None
) -> Path:
    """Return the directory of the tree of a cache for `layer`, writing it first where it is missing.

    `content` is a descriptor of the content for pods; `root` is the directory of the digest's trees on the disk, and
    `memory` their root on a tmpfs, beside the roots of other digests: only this process writes to them. The caller
    holds the shared lock of the entry, or its volume has a record, so that the content and the trees are not collected.
    `in_use` returns the keys of the layers that volumes of this cache use, the caller's own among them: at MAX_TREES,
    the unused trees are removed. gkm.mounts.relocation.tree_limits has the limits of a namespace.

    Raises:
        RelocationInProgress: another call writes a tree of the same cache, or MAX_CONCURRENT others do.
        TooMany: the caller's namespace uses its share.
        AllInUse: other namespaces use all trees of the limit.
        Unrelocatable: the content is no store entry.
        OSError: a disk operation failed; existing trees stay.
    """
    boot = boot_id()
    roots = [root] if memory is None else [memory, root]
    if found := _find(roots, layer, boot):
        return found
    roots[0].mkdir(parents=True, exist_ok=True)
    try:
        with _build_slot(), locks.exclusive(roots[0] / _LOCK_FILE):
            if found := _find(roots, layer, boot):
                return found
            check_share(in_use(), layer.key)
            _evict_unused(roots, in_use)
            for each in roots:
                _remove_invalid(layer, each)
            check_all(in_use(), layer.key, len(_existing(roots)))
            if memory is not None and (tree := _built_in_memory(content, layer, memory, boot)):
                return tree
            root.mkdir(parents=True, exist_ok=True)
            return _build(content, layer, root, boot)
    except locks.LockBusy as error:
        raise RelocationInProgress(f"the paths of {root.name} are being rewritten") from error


def boot_id() -> str:
    """Return the id of this boot of this machine."""
    return _BOOT.read_text(encoding="ascii").strip()


def remove_unfinished(memory: Path) -> None:
    """Remove relocated trees in memory that a killed process left unfinished.

    Raises:
        OSError: one cannot be removed.
    """
    for leftover in memory.glob(f"*/{_TEMPORARY_PREFIX}*"):
        trees.remove(leftover)


def _find(roots: Sequence[Path], layer: RelocationLayer, boot: str) -> Path | None:
    """Return the valid tree of a layer below `roots`."""
    with _eviction:  # not held while the disk is read: a later eviction sees the record of the volume
        pass
    for directory in (root / layer.key for root in roots):
        if _identity(layer, boot).items() <= _metadata(directory).items():
            return directory / _TREE_DIRECTORY
    return None


def _metadata(directory: Path) -> dict[str, object]:
    """Return the metadata of a tree, empty if it is missing or damaged.

    Raises:
        OSError: it cannot be read now. The tree may be good, and mounted.
    """
    try:
        return files.read_object(directory / _METADATA_FILE, _MAX_BYTES)
    except FileNotFoundError:
        return {}
    except UnreadableState as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno not in _NOT_OURS:
            raise cause from error
        return {}


def _identity(layer: RelocationLayer, boot: str) -> dict[str, object]:
    """Return the part of a tree's metadata that tells whether it is valid."""
    return {"format": _FORMAT, "bootId": boot, "mountPath": layer.mount_path.text if layer.mount_path else ""}


def _existing(roots: Sequence[Path]) -> list[Path]:
    return [path for root in roots for path in root.glob("[!.]*")]


def _evict_unused(roots: Sequence[Path], in_use: Callable[[], Uses]) -> None:
    """Give unused trees temporary names at the limit, before another one is written."""
    existing = _existing(roots)
    if len(existing) < MAX_TREES:
        return
    with _eviction:
        uses = in_use()
        for path in existing if uses.complete else ():
            if path.name not in uses.every:
                path.rename(_temporary(path.parent))


def _built_in_memory(content: int, layer: RelocationLayer, memory: Path, boot: str) -> Path | None:
    """Return the tree, built in memory; None if it is too large, or memory holds enough trees."""
    taken = sum(_memory_bytes(tree) for tree in memory.parent.glob("*/[!.]*"))
    # Each of the trees that are being written now may yet take its limit.
    if taken + MAX_CONCURRENT * MAX_TREE_MEMORY > MAX_MEMORY:
        return None
    try:
        return _build(content, layer, memory, boot, MAX_TREE_MEMORY)
    except tree_writer.TreeTooLarge:
        return None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return None


def _memory_bytes(directory: Path) -> int:
    size = _metadata(directory).get("memoryBytes")
    return size if isinstance(size, int) else MAX_TREE_MEMORY


def _build(content: int, layer: RelocationLayer, root: Path, boot: str, max_memory_bytes: int | None = None) -> Path:
    directory = root / layer.key
    temporary = _temporary(root)
    temporary.mkdir(0o755)
    try:
        counts = tree_writer.write(
            content,
            temporary / _TREE_DIRECTORY,
            layer.mount_path,
            is_writable=layer.is_writable,
            max_memory_bytes=max_memory_bytes,
        )
        metadata = _identity(layer, boot) | {"memoryBytes": counts.memory_bytes}
        (temporary / _METADATA_FILE).write_bytes(files.encode(metadata))
        temporary.rename(directory)
    except BaseException:
        with suppress(OSError):
            trees.remove(temporary)
        raise
    return directory / _TREE_DIRECTORY


def _remove_invalid(layer: RelocationLayer, root: Path) -> None:
    """Remove an invalid tree of a layer, in one step, evicted trees, and what writers left that died."""
    with suppress(FileNotFoundError):
        (root / layer.key).rename(_temporary(root))
    # Under the lock, no other thread writes a temporary directory.
    for leftover in root.glob(f"{_TEMPORARY_PREFIX}*"):
        trees.remove(leftover)


def _temporary(root: Path) -> Path:
    return root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"


@contextmanager
def _build_slot() -> Iterator[None]:
    if not _slots.acquire(blocking=False):
        raise RelocationInProgress(f"{MAX_CONCURRENT} trees are being written already")
    try:
        yield
    finally:
        _slots.release()
