"""The relocated trees of a cache: written once for a digest and a layer, shared by every volume that needs it.

A tree holds the few files that contain absolute paths, rewritten for one mount path, and directories to write in. It is
written under a temporary name and appears by one rename; the next writer removes the temporary directory of a process
that died. Nothing is synced to disk: a tree is valid only in the boot that wrote it, because after a power cut a
damaged tree looks like a good one, and writing it again is faster than a sync. No mount of an earlier boot uses it.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
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
"""Raised when the same content and path give other files: trees of an older format are invalid."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES: Final = 16 << 10

MAX_CONCURRENT: Final = 2
"""Trees that one process writes at a time. The largest that an image may need takes minutes, and the caller has few
threads: further callers get an error and repeat their call, and other calls are served meanwhile."""
_slots: Final = threading.BoundedSemaphore(MAX_CONCURRENT)


class RelocationInProgress(Exception):
    """Another call writes a tree of the same cache, or MAX_CONCURRENT trees are being written; repeat the call."""


@dataclass(frozen=True, slots=True)
class RelocationLayer:
    """A tree to write: for `mount_path`, None if not given; `is_writable` adds every directory, to write in."""

    mount_path: MountPath | None
    is_writable: bool = False

    @property
    def key(self) -> str:
        """Return the name of its directory: the same on every node and in every version."""
        path = self.mount_path.key if self.mount_path else "anywhere"
        return f"{path}-open" if self.is_writable else path


def relocate(content: int, layer: RelocationLayer, root: Path, in_use: Callable[[], Uses] = Uses) -> Path:
    """Return the directory of the tree of a cache for `layer`, writing it first where it is missing.

    `content` is a descriptor of the content for pods; `root` is the directory of the digest's trees, which only this
    process writes to. The caller holds the shared lock of the entry, so that neither is collected. `in_use` returns the
    keys of the layers that volumes of this cache use, the caller's own among them: at MAX_TREES, the unused trees are
    removed. gkm.mounts.relocation.tree_limits has the limits of a namespace.

    Raises:
        RelocationInProgress: another call writes a tree of the same cache, or MAX_CONCURRENT others do.
        TooMany: the caller's namespace uses its share.
        AllInUse: other namespaces use all trees of the limit.
        Unrelocatable: the content is not that of a store entry.
        OSError: the disk refused; existing trees stay.
    """
    boot = boot_id()
    if found := _find(root, layer, boot):
        return found
    root.mkdir(parents=True, exist_ok=True)
    try:
        with _build_slot(), locks.exclusive(root / _LOCK_FILE):
            if found := _find(root, layer, boot):
                return found
            check_share(in_use(), layer.key)
            _evict_unused(root, layer.key, in_use)
            return _build(content, layer, root, boot)
    except locks.LockBusy as error:
        raise RelocationInProgress(f"the paths of {root.name} are being rewritten") from error


def boot_id() -> str:
    """Return the identity of this boot of this machine: random, so that no two machines have the same."""
    return _BOOT.read_text(encoding="ascii").strip()


def _find(root: Path, layer: RelocationLayer, boot: str) -> Path | None:
    directory = root / layer.key
    try:
        metadata = files.read_object(directory / _METADATA_FILE, _MAX_BYTES)
    except (FileNotFoundError, UnreadableState):
        return None
    has_counts = all(isinstance(metadata.get(name), int) for name in ("rewritten", "incomplete"))
    valid = has_counts and _identity(layer, boot).items() <= metadata.items()
    return directory / _TREE_DIRECTORY if valid else None


def _identity(layer: RelocationLayer, boot: str) -> dict[str, object]:
    """Return the part of a tree's metadata that tells whether it is valid."""
    return {"format": _FORMAT, "bootId": boot, "mountPath": layer.mount_path.text if layer.mount_path else ""}


def _evict_unused(root: Path, key: str, in_use: Callable[[], Uses]) -> None:
    """Evict trees before another one is written. A volume that uses a tree has a record before it opens the tree."""
    existing = [path for path in root.iterdir() if not path.name.startswith(".")]
    if len(existing) < MAX_TREES:
        return
    uses = in_use()
    for path in existing:
        if path.name not in uses.every:
            _evict(path, root, in_use)
    check_all(uses, key, sum(1 for path in existing if path.exists()))


def _build(content: int, layer: RelocationLayer, root: Path, boot: str) -> Path:
    # Under the lock, a temporary directory belongs to a process that died.
    for leftover in root.glob(f"{_TEMPORARY_PREFIX}*"):
        trees.remove(leftover)
    directory = root / layer.key
    temporary = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    temporary.mkdir(0o755)
    try:
        counts = tree_writer.write(
            content, temporary / _TREE_DIRECTORY, layer.mount_path, is_writable=layer.is_writable
        )
        metadata = {**_identity(layer, boot), "rewritten": counts.rewritten, "incomplete": counts.incomplete}
        (temporary / _METADATA_FILE).write_bytes(files.encode(metadata))
        _remove_stale(directory, root)
        temporary.rename(directory)
    except BaseException:
        with suppress(OSError):
            trees.remove(temporary)
        raise
    return directory / _TREE_DIRECTORY


def _remove_stale(directory: Path, root: Path) -> None:
    """Remove an invalid tree in one step, so that no reader sees a part of it."""
    old = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        directory.rename(old)
    except FileNotFoundError:
        return
    trees.remove(old)


def _evict(directory: Path, root: Path, in_use: Callable[[], Uses]) -> None:
    """Remove a tree that was unused a moment ago, unless a volume has recorded its use since."""
    old = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    directory.rename(old)
    if directory.name in in_use().every:
        old.rename(directory)
    else:
        trees.remove(old)


@contextmanager
def _build_slot() -> Iterator[None]:
    if not _slots.acquire(blocking=False):
        raise RelocationInProgress(f"{MAX_CONCURRENT} trees are being written already")
    try:
        yield
    finally:
        _slots.release()
