"""Blob files on the disk: partial while a download runs, whole for a while afterwards, shared by a repository's images.

The name of a file holds its repository and its digest. So a pull reuses a blob only after the registry has shown it a
manifest of the same repository: knowing a digest of another tenant gives no access to its content.
"""

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gkm.images.manifest import Descriptor
from gkm.images.reference import Reference

STALE_SECONDS = 24 * 3600.0
"""Seconds after which the sweep removes an unused blob, or a partial blob without new bytes."""
MAX_CACHED_BYTES = 1 << 30
"""Limit of bytes of all unused complete blobs; they are kept for other images with the same layers."""
PART = ".part"
REGISTRY_PART = ".registry-part"
"""A partial blob with bytes of the registry alone: the wrong bytes of a mirror must not cost these.

The name of a whole blob has no suffix.
"""
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LockedBlob:
    """The file of a blob under an exclusive lock; `descriptor` is open at its start."""

    path: Path
    descriptor: int

    def finalize(self, target: Path) -> None:
        """Move the complete, verified blob file to its final name and hard-link it as `target`."""
        whole = self.path.with_suffix("")
        self.path.rename(whole)
        os.utime(whole)
        os.link(whole, target)


@dataclass(frozen=True, slots=True)
class BlobFiles:
    """The blob files in `directory`. Several threads and processes may use them at once."""

    directory: Path

    @contextmanager
    def locked(
        self, ref: Reference, blob: Descriptor, on_wait: Callable[[], object], part: str = PART
    ) -> Iterator[LockedBlob]:
        """Lock the file of a blob, the one with the suffix `part` while no pull has completed the blob.

        While another pull holds the lock, call `on_wait`, which may raise to give up.

        Raises:
            OSError: a disk operation failed.
        """
        whole = self._path(ref, blob)
        self.directory.mkdir(parents=True, exist_ok=True)
        while (found := _try_lock(whole, part)) is None:
            on_wait()
            time.sleep(_POLL_SECONDS)
        try:
            yield found
        finally:
            os.close(found.descriptor)

    def drop(self, ref: Reference, blobs: Iterable[Descriptor]) -> None:
        """Remove the blobs of an image whose content was refused, except blobs that another pull has locked.

        Raises:
            OSError: a disk operation failed.
        """
        for blob in blobs:
            whole = self._path(ref, blob)
            for path in (whole, whole.with_suffix(PART), whole.with_suffix(REGISTRY_PART)):
                if locked := _lock(path):
                    path.unlink(missing_ok=True)
                    os.close(locked.descriptor)

    def sweep(self, now: float | None = None) -> None:
        """Remove stale files, then the least recently used whole blobs beyond MAX_CACHED_BYTES. Locked files stay."""
        self._remove(lambda age, _whole, _newer: age > STALE_SECONDS, now)
        self._remove(lambda _age, whole, newer: whole and newer > MAX_CACHED_BYTES, now)

    def evict_unused(self) -> None:
        """Remove every whole blob that no pull has locked; a later pull can fetch it again."""
        self._remove(lambda _age, whole, _newer: whole)

    def _path(self, ref: Reference, blob: Descriptor) -> Path:
        """Return the file of a whole blob."""
        name = f"{hashlib.sha256(ref.name.encode()).hexdigest()[:16]}-{blob.digest.removeprefix('sha256:')}"
        return self.directory / name

    def _remove(self, should_remove: Callable[[float, bool, int], bool], now: float | None = None) -> None:
        """Remove the unlocked files for which `should_remove(age, whole, newer)` holds.

        `age` is in seconds; `newer` is the sum in bytes of the whole blobs up to this one, the last used first.
        """
        newer = 0
        for path, status in _by_last_use(self.directory):
            whole = not path.suffix
            newer += status.st_size if whole else 0
            if should_remove((now or time.time()) - status.st_mtime, whole, newer) and (locked := _lock(path)):
                path.unlink(missing_ok=True)
                os.close(locked.descriptor)


def _by_last_use(directory: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the regular files with their status, the last used first."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((path, status))
    return sorted(found, key=lambda entry: entry[1].st_mtime, reverse=True)


def _try_lock(whole: Path, part: str) -> LockedBlob | None:
    """Return the locked file of a blob; None if another pull has the lock or just completed the blob."""
    path = whole if whole.exists() else whole.with_suffix(part)
    locked = _lock(path, os.O_CREAT)
    if locked is not None and path != whole and whole.exists():
        # Another pull completed the blob before we had the lock: we created an empty partial file.
        path.unlink()
        os.close(locked.descriptor)
        return None
    return locked


def _lock(path: Path, flags: int = 0) -> LockedBlob | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another pull may rename or remove the file between open and lock.
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return LockedBlob(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
