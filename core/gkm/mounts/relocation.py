"""The few files of a cache that name absolute paths, rewritten for one mount path: made once, shared by every volume.

The tree is the top layer of a mount at that path. It is made beside others and appears by one rename; a process that
dies leaves a temporary directory, which the next one removes. Nothing is synced to the disk: a tree counts only in the
boot that made it, since what a power cut leaves of it cannot be told from a good one, and making it anew takes less
time than asking the disk. No mount of an earlier boot is left to show it.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gkm.hoststate import files
from gkm.hoststate.files import UnreadableState
from gkm.mounts import relocation_tree
from gkm.mounts.relocation_paths import MountPath
from gkm.mounts.relocation_tree import Counts

_TREE: Final = "tree"
_MADE: Final = "made.json"
_LOCK: Final = ".lock"
_TEMPORARY: Final = ".tmp-"
_FORMAT: Final = 1
"""Raised when the same content and path would give other files: trees of an older version do not count."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES: Final = 16 << 10


class UnderWay(Exception):
    """Somebody else makes a tree of the same cache; it is there within a second, so ask again."""


@dataclass(frozen=True, slots=True)
class Relocated:
    """A tree that can be mounted on top of its cache at the mount path that it was made for."""

    tree: Path
    counts: Counts


def relocate(content: int, mount_path: MountPath, place: Path) -> Relocated:
    """Return the tree of a cache for `mount_path`, making it first where it is not there yet.

    `content` is a descriptor of what pods see of the cache; `place` is the directory of its trees, one for a digest,
    which nobody but us may write. The caller holds the lock of the entry, shared, so that neither is collected.

    Raises:
        UnderWay: another call makes one of the same cache; nothing waits here.
        Unrelocatable: the content is not what an entry can hold.
        OSError: the disk refused; what was there stands.
    """
    boot = _BOOT.read_text(encoding="ascii").strip()
    if found := _find(place, mount_path, boot):
        return found
    place.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        if found := _find(place, mount_path, boot):
            return found
        return _make(content, mount_path, place, boot)


def remove(place: Path) -> None:
    """Remove the trees of a cache for every mount path; idempotent. The caller holds its entry's lock alone.

    Raises:
        OSError: the disk refused.
    """
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return


def _find(place: Path, mount_path: MountPath, boot: str) -> Relocated | None:
    directory = place / mount_path.key
    try:
        made = files.read_object(directory / _MADE, _MAX_BYTES)
    except (FileNotFoundError, UnreadableState):
        return None
    rewritten, incomplete = made.get("rewritten"), made.get("incomplete")
    if made.get("format") != _FORMAT or made.get("bootId") != boot or made.get("mountPath") != mount_path.text:
        return None
    if not isinstance(rewritten, int) or not isinstance(incomplete, int):
        return None
    return Relocated(directory / _TREE, Counts(rewritten, incomplete))


def _make(content: int, mount_path: MountPath, place: Path, boot: str) -> Relocated:
    # The lock is held, so what is temporary here belongs to a process that died.
    for left in place.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(left)
    directory = place / mount_path.key
    temporary = place / f"{_TEMPORARY}{secrets.token_hex(8)}"
    temporary.mkdir(0o755)
    try:
        counts = relocation_tree.write(content, temporary / _TREE, mount_path)
        made = {"format": _FORMAT, "bootId": boot, "mountPath": mount_path.text}
        record = files.encode({**made, "rewritten": counts.rewritten, "incomplete": counts.incomplete})
        (temporary / _MADE).write_bytes(record)
        _withdraw(directory, place)
        temporary.rename(directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Relocated(directory / _TREE, counts)


def _withdraw(directory: Path, place: Path) -> None:
    """Take away a tree of an earlier boot, in one step: what has no right content is not there."""
    old = place / f"{_TEMPORARY}{secrets.token_hex(8)}"
    try:
        directory.rename(old)
    except FileNotFoundError:
        return
    shutil.rmtree(old)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    descriptor = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnderWay(f"the paths of {place.name} are being rewritten") from error
        yield
    finally:
        os.close(descriptor)
