"""Blobs on the disk: in parts while they come, whole for a while after, shared by the images of one repository.

A file is named by repository and digest, so that what one tenant may read is never handed to another who merely knows
its digest: whoever reaches the blob here has been shown a manifest of the same repository.
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
"""A blob that nobody has used, or a part that nobody has added to, for so long is not kept any more."""
MAX_CACHED_BYTES = 1 << 30
"""So much of whole blobs is kept for the next image that shares them: nodes have better uses for their disks."""
PART = ".part"
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LockedBlob:
    """A blob's file that is locked for us: the `descriptor` of the open file is at its start."""

    path: Path
    descriptor: int

    def finalize(self, target: Path) -> None:
        """Take the blob, whole and checked, as `target` too; it stays here under its name for others."""
        whole = self.path.with_suffix("")
        self.path.rename(whole)
        os.utime(whole)
        os.link(whole, target)


@dataclass(frozen=True, slots=True)
class BlobFiles:
    """The blobs in `directory`. Several threads and processes may use it at once."""

    directory: Path

    @contextmanager
    def locked(self, ref: Reference, blob: Descriptor, on_wait: Callable[[], object]) -> Iterator[LockedBlob]:
        """Hold the file of a blob; while another pull holds it, `waiting` is called, which may give up by raising.

        Raises:
            OSError: the disk refused.
        """
        whole = self._path(ref, blob)
        self.directory.mkdir(parents=True, exist_ok=True)
        while (found := _try_lock(whole)) is None:
            on_wait()
            time.sleep(_POLL_SECONDS)
        try:
            yield found
        finally:
            os.close(found.descriptor)

    def drop(self, ref: Reference, blobs: Iterable[Descriptor]) -> None:
        """Remove blobs, whole or in part: their image was refused for its content. What another pull holds stays.

        Raises:
            OSError: the disk refused.
        """
        for blob in blobs:
            whole = self._path(ref, blob)
            for path in (whole, whole.with_name(whole.name + PART)):
                if held := _lock(path):
                    path.unlink(missing_ok=True)
                    os.close(held.descriptor)

    def sweep(self, now: float | None = None) -> None:
        """Remove what is stale, and of the whole blobs the least used beyond KEPT_BYTES; what is in use stays."""
        self._remove(lambda age, _whole, _newer: age > STALE_SECONDS, now)
        self._remove(lambda _age, whole, newer: whole and newer > MAX_CACHED_BYTES, now)

    def evict_unused(self) -> None:
        """Remove every whole blob that nobody uses: they can be fetched again."""
        self._remove(lambda _age, whole, _newer: whole)

    def _path(self, ref: Reference, blob: Descriptor) -> Path:
        """Return the file of a whole blob."""
        name = f"{hashlib.sha256(ref.name.encode()).hexdigest()[:16]}-{blob.digest.removeprefix('sha256:')}"
        return self.directory / name

    def _remove(self, should_remove: Callable[[float, bool, int], bool], now: float | None = None) -> None:
        """Remove what `doomed` says of age in seconds, wholeness, and bytes of whole blobs up to and with this one."""
        newer = 0
        for path, status in _by_use(self.directory):
            whole = path.suffix != PART
            newer += status.st_size if whole else 0
            if should_remove((now or time.time()) - status.st_mtime, whole, newer) and (locked := _lock(path)):
                path.unlink(missing_ok=True)
                os.close(locked.descriptor)


def _by_use(directory: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the files, the last used first."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((path, status))
    return sorted(found, key=lambda entry: entry[1].st_mtime, reverse=True)


def _try_lock(whole: Path) -> LockedBlob | None:
    """Return the blob's file, whole or in part; None while another pull holds it, or has just changed it."""
    path = whole if whole.exists() else whole.with_name(whole.name + PART)
    locked = _lock(path, os.O_CREAT)
    if locked is not None and path != whole and whole.exists():
        # It became whole between our look and our lock: what we made is an empty part.
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
        # Somebody may have renamed or removed it between our open and our lock.
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return LockedBlob(path, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
