"""What goes on top of a cache in a mount: made once for a digest and a layer, shared by every volume that wants it.

It is a tree of the few files that name absolute paths, rewritten for one mount path, and of directories to write in. It
is made beside others and appears by one rename; a process that dies leaves a temporary directory, which the next one
removes. Nothing is synced to the disk: a tree counts only in the boot that made it, since what a power cut leaves of it
cannot be told from a good one, and making it anew takes less time than asking the disk. No mount of an earlier boot is
left to show it.
"""

import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import files, trees
from gkm.hoststate.files import UnreadableState
from gkm.mounts.relocation import tree_writer as relocation_tree
from gkm.mounts.relocation.mount_path import MountPath
from gkm.mounts.relocation.tree_limits import MAX_TREES, Uses, check_all, check_share
from gkm.mounts.relocation.tree_writer import RewriteCounts

_TREE_DIRECTORY: Final = "tree"
_METADATA_FILE: Final = "made.json"
_LOCK_FILE: Final = ".lock"
_TEMPORARY_PREFIX: Final = ".tmp-"
_FORMAT: Final = 1
"""Raised when the same content and path would give other files: trees of an older version do not count."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES: Final = 16 << 10


MAX_CONCURRENT: Final = 2
"""Trees that one process makes at a time. The largest that an image may ask for takes minutes, and the caller has few
threads: whoever waits asks again, and the others are answered meanwhile."""
_slots: Final = threading.BoundedSemaphore(MAX_CONCURRENT)


class RelocationInProgress(Exception):
    """Somebody else makes a tree of the same cache, or as many are made as may be at a time; so ask again."""


@dataclass(frozen=True, slots=True)
class RelocationLayer:
    """A tree to be made: for `mount_path`, None where nobody says; `is_open` with every directory, to write in."""

    mount_path: MountPath | None
    is_writable: bool = False

    @property
    def key(self) -> str:
        """Return the name of its directory: the same on every node and for ever."""
        path = self.mount_path.key if self.mount_path else "anywhere"
        return f"{path}-open" if self.is_writable else path


@dataclass(frozen=True, slots=True)
class RelocatedTree:
    """A tree that can be mounted on top of its cache, at the mount path that it was made for."""

    tree: Path
    counts: RewriteCounts


def relocate(content: int, layer: RelocationLayer, root: Path, in_use: Callable[[], Uses] = Uses) -> RelocatedTree:
    """Return the tree of a cache for `layer`, making it first where it is not there yet.

    `content` is a descriptor of what pods see of the cache; `place` is the directory of its trees, one for a digest,
    which nobody but us may write. The caller holds the lock of the entry, shared, so that neither is collected.
    `in_use` tells the keys of the layers that volumes of this cache use, the caller's own among them: where there are
    MAX_TREES, the others go. How many a namespace may have is in relocation_shares.

    Raises:
        UnderWay: another call makes one of the same cache, or others as many as may be; nothing waits here.
        TooMany: the caller's namespace uses its share.
        AllInUse: other namespaces use as many as may be.
        Unrelocatable: the content is not what an entry can hold.
        OSError: the disk refused; what was there stands.
    """
    boot = _BOOT.read_text(encoding="ascii").strip()
    if found := _find(root, layer, boot):
        return found
    root.mkdir(parents=True, exist_ok=True)
    with _build_slot(), _exclusive_lock(root):
        if found := _find(root, layer, boot):
            return found
        check_share(in_use(), layer.key)
        _evict_unused(root, layer.key, in_use)
        return _build(content, layer, root, boot)


def remove(root: Path) -> None:
    """Remove the trees of a cache for every mount path; idempotent. The caller holds its entry's lock alone.

    Raises:
        OSError: the disk refused.
    """
    trees.remove(root)


def _find(root: Path, layer: RelocationLayer, boot: str) -> RelocatedTree | None:
    directory = root / layer.key
    try:
        metadata = files.read_object(directory / _METADATA_FILE, _MAX_BYTES)
    except (FileNotFoundError, UnreadableState):
        return None
    rewritten, incomplete = metadata.get("rewritten"), metadata.get("incomplete")
    if (
        metadata.get("format") != _FORMAT
        or metadata.get("bootId") != boot
        or metadata.get("mountPath") != _mount_path_text(layer)
    ):
        return None
    if not isinstance(rewritten, int) or not isinstance(incomplete, int):
        return None
    return RelocatedTree(directory / _TREE_DIRECTORY, RewriteCounts(rewritten, incomplete))


def _mount_path_text(layer: RelocationLayer) -> str:
    return layer.mount_path.text if layer.mount_path else ""


def _evict_unused(root: Path, key: str, in_use: Callable[[], Uses]) -> None:
    """See that another tree may be made. Whoever finds a tree has said before, in a record, that it is in use."""
    trees = [path for path in root.iterdir() if not path.name.startswith(".")]
    if len(trees) < MAX_TREES:
        return
    uses = in_use()
    for path in trees:
        if path.name not in uses.every:
            _evict(path, root, in_use)
    check_all(uses, key, sum(1 for path in trees if path.exists()))


def _build(content: int, layer: RelocationLayer, root: Path, boot: str) -> RelocatedTree:
    # The lock is held, so what is temporary here belongs to a process that died.
    for left in root.glob(f"{_TEMPORARY_PREFIX}*"):
        trees.remove(left)
    directory = root / layer.key
    temporary = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    temporary.mkdir(0o755)
    try:
        counts = relocation_tree.write(
            content, temporary / _TREE_DIRECTORY, layer.mount_path, is_writable=layer.is_writable
        )
        metadata = {"format": _FORMAT, "bootId": boot, "mountPath": _mount_path_text(layer)}
        record = files.encode({**metadata, "rewritten": counts.rewritten, "incomplete": counts.incomplete})
        (temporary / _METADATA_FILE).write_bytes(record)
        _remove_stale(directory, root)
        temporary.rename(directory)
    except BaseException:
        with suppress(OSError):
            trees.remove(temporary)
        raise
    return RelocatedTree(directory / _TREE_DIRECTORY, counts)


def _remove_stale(directory: Path, root: Path) -> None:
    """Take away a tree that counts no more, in one step: what has no right content is not there."""
    old = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    try:
        directory.rename(old)
    except FileNotFoundError:
        return
    trees.remove(old)


def _evict(directory: Path, root: Path, in_use: Callable[[], Uses]) -> None:
    """Take away a tree that nobody used a moment ago; who has found it since has a record by now, and keeps it."""
    old = root / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
    directory.rename(old)
    if directory.name in in_use().every:
        old.rename(directory)
    else:
        trees.remove(old)


@contextmanager
def _build_slot() -> Iterator[None]:
    if not _slots.acquire(blocking=False):
        raise RelocationInProgress(f"{MAX_CONCURRENT} trees are being made already")
    try:
        yield
    finally:
        _slots.release()


@contextmanager
def _exclusive_lock(root: Path) -> Iterator[None]:
    descriptor = os.open(root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RelocationInProgress(f"the paths of {root.name} are being rewritten") from error
        yield
    finally:
        os.close(descriptor)
