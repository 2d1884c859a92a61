"""The caches of `gkm exec` on this machine: the layout of the agent's store, in a separate directory.

The agent's own store is never used: it belongs to the agent's budget and garbage collection. Several runs of one user
may use one directory at once, also from several machines that share it; a run tries again while another one holds a
lock, never forever.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gkm.hoststate import files, locks, names, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.locks import LockBusy
from gkm.images.pulling import entry
from gkm.images.pulling.blob_files import BlobFiles
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.mounts.relocation.tree_store import RelocationInProgress

from gkm_cli.cache.store_directories import PASSAGE, PRIVATE, check_own, limit, make
from gkm_cli.disks import cache_directory
from gkm_cli.output import CommandFailed, UsageError

MAX_BYTES = 64 << 30
"""Limit of bytes of all caches if store.maxBytes is not configured."""
_ANY_DIGEST = f"sha256:{'0' * 64}"
_REFERENCE = "reference"
"""In the directory of an entry: the reference by which the last run named its image."""
_MAX_REFERENCE_BYTES = 4096
T = TypeVar("T")
SECONDS = 60.0
"""Seconds that a run waits for locks of another run."""
_POLL_SECONDS = 0.1


def default_directory(environment: Mapping[str, str]) -> Path:
    """Return the default store directory for root or for a user."""
    if os.geteuid() == 0:
        return Path("/var/cache/gkm/exec")
    return cache_directory(environment) / "exec"


@dataclass(frozen=True, slots=True)
class StoredCache:
    """A cache in the store of `gkm exec`; `last_use` in seconds since 1970, 0 for never.

    A damaged cache has no known size.
    """

    digest: str
    last_use: float
    size_bytes: int = 0
    files: int = 0
    damage: str = ""


class RunStore:
    """The caches of `gkm exec` in one directory of this machine."""

    def __init__(self, root: Path) -> None:
        """Take a directory, by any path.

        Raises:
            UsageError: programs cannot have a cache at paths in it.
        """
        # The paths of caches are those that the kernel shows: absolute, without links and `..`.
        state = Path("/" + os.path.realpath(root).lstrip("/"))
        self.layout = Layout(state, state / "run")
        try:
            MountPath(f"{self.view(_ANY_DIGEST)}/{entry.CONTENT}")  # the longest of them
        except InvalidMountPath as error:
            raise UsageError(
                f"no cache can be below the path of the store: {error}", "name another directory with --store"
            ) from error

    @property
    def mounts(self) -> Path:
        """Return the directory of mount points, with an empty directory for each cache."""
        return self.layout.state / "mounts"

    @property
    def views(self) -> Path:
        """Return the directory of caches that programs read without a mount."""
        return self.layout.state / "views"

    def view(self, digest: str) -> Path:
        """Return the directory of a cache that programs read without a mount."""
        return (
            self.views / self.layout.entry(digest).name / sha256(str(self.views).encode("utf-8", "replace")).hexdigest()
        )

    def trees(self, digest: str) -> Path:
        """Return the directory of a cache's trees with rewritten paths, which are valid until the next boot."""
        return self.layout.relocated(digest) / tree_store.boot_id()

    @property
    def _all_trees(self) -> Path:
        return self.layout.relocated(_ANY_DIGEST).parent

    @property
    def copies(self) -> Path:
        """Return the directory of private copies, one for each program."""
        return self.layout.state / "copies"

    def make(self) -> None:
        """Create the directories of the store, and remove files that killed runs left.

        Raises:
            UsageError: the directory or one above is another user's, or others may write in it.
            OSError: the directory cannot be written.
        """
        layout = self.layout
        make(layout.state)
        layout.make_directories()
        passages = (self.mounts, self.views, self.copies)
        made = (layout.blobs, self._all_trees, layout.run / "layer")
        for directory in (*passages, *made):
            directory.mkdir(parents=True, exist_ok=True)
        private = (*made, layout.locks, layout.store, layout.work, layout.trash, layout.empty, layout.caches)
        check_own((*passages, *private))
        limit(passages, PASSAGE)
        limit((*private, *self._tops(private)), PRIVATE)
        with suppress(LockBusy), locks.exclusive(self._building):
            # No run extracts or builds now.
            for directory in (self.layout.work, self.layout.trash):
                for leftover in directory.iterdir():
                    trees.remove(leftover)
            self._remove_unused_locks()
        self._remove_copies()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Prevent other runs from removing unfinished downloads during the block.

        Raises:
            CommandFailed: another run takes too long.
        """
        with ExitStack() as stack:
            retried_while_busy(lambda: stack.enter_context(locks.shared(self._building)))
            yield

    def use(self, digest: str) -> None:
        """Lock a cache against removal until this process ends, even if execve replaces the program.

        Raises:
            CommandFailed: another run takes too long.
        """
        path = self.layout.entry_lock(digest)
        self._remove_earlier_trees(digest)
        retried_while_busy(lambda: locks.shared_beyond_exec(path))
        os.utime(path)

    def note(self, digest: str, reference: str) -> None:
        """Record the reference under which a run named the image of a cache.

        Raises:
            OSError: a disk operation failed.
        """
        if reference != self.reference(digest):
            files.replace(self.layout.entry(digest) / _REFERENCE, reference.encode(), durable=False)

    def reference(self, digest: str) -> str:
        """Return the reference under which the last run named the image of a cache; "" if it is not known."""
        try:
            return files.read_bounded(self.layout.entry(digest) / _REFERENCE, _MAX_REFERENCE_BYTES).decode()
        except (OSError, ValueError):
            return ""

    def caches(self) -> list[StoredCache]:
        """Return all caches in the store, the least recently used first.

        Raises:
            OSError: a disk operation failed.
        """
        try:
            digests = [f"sha256:{name}" for name in files.names_in(self.layout.store)]
        except FileNotFoundError:
            return []
        found = (self._stored(digest) for digest in digests if names.is_digest(digest))
        return sorted(filter(None, found), key=lambda each: each.last_use)

    def is_used(self, digest: str) -> bool:
        """Return whether a running program uses a cache."""
        lock = self.layout.entry_lock(digest)
        if not lock.exists():
            return False
        try:
            with locks.exclusive(lock):
                return False
        except LockBusy:
            return True

    def prune(self, keep_bytes: int) -> list[StoredCache]:
        """Remove the damaged caches, and the least recently used until the others have `keep_bytes` at most.

        It waits for no program, and removes no cache that a program uses. Downloads that no pull uses go too.

        Returns:
            The removed caches.

        Raises:
            OSError: a disk operation failed.
        """
        found = self.caches()
        sound = [each for each in found if not each.damage]
        removed = [each for each in found if each.damage and self._is_removed(each)]
        # Without a size to keep, empty caches go too.
        wanted = sum(each.size_bytes for each in sound) - keep_bytes if keep_bytes else math.inf
        removed += self._freed(sound, wanted)
        downloads = BlobFiles(self.layout.blobs)
        downloads.sweep()
        downloads.evict_unused()
        return removed

    def evict(self, max_bytes: int) -> None:
        """Remove the least recently used caches that no program uses, until all together have at most `max_bytes`.

        Raises:
            OSError: a disk operation failed.
        """
        self.free(sum(found.size_bytes for found in self.caches()) - max_bytes)

    def free(self, wanted_bytes: int) -> int:
        """Remove the least recently used unused caches until `wanted_bytes` are free; return the removed bytes.

        Raises:
            OSError: a disk operation failed.
        """
        # A pull of the digest of a damaged entry names it.
        sound = [each for each in self.caches() if not each.damage]
        return sum(each.size_bytes for each in self._freed(sound, wanted_bytes))

    def discard(self, path: Path) -> None:
        """Remove a directory tree; rename it first, so that a killed run leaves no partial tree in its place.

        Raises:
            OSError: a disk operation failed.
        """
        gone = self.layout.trash / secrets.token_hex(8)
        with suppress(FileNotFoundError):
            path.rename(gone)
            trees.remove(gone)

    def _tops(self, directories: Iterable[Path]) -> set[Path]:
        """Return the directories just below the store that these are in."""
        return {self.layout.state / each.relative_to(self.layout.state).parts[0] for each in directories}

    @property
    def _building(self) -> Path:
        return self.layout.state / "locks" / "building"

    def _stored(self, digest: str) -> StoredCache | None:
        last_use = _last_use(self.layout.entry_lock(digest))
        try:
            found = entry.find(self.layout, digest)
        except UnreadableState as error:
            return StoredCache(digest, last_use, damage=str(error))
        return StoredCache(digest, last_use, found.size_bytes, found.files) if found else None

    def _freed(self, oldest_first: Sequence[StoredCache], wanted_bytes: float) -> list[StoredCache]:
        removed: list[StoredCache] = []
        for found in oldest_first:
            if wanted_bytes <= 0:
                break
            if self._is_removed(found):
                removed.append(found)
                wanted_bytes -= found.size_bytes
        return removed

    def _is_removed(self, found: StoredCache) -> bool:
        """Remove a cache, unless a program uses it; return whether it is gone."""
        with suppress(LockBusy), locks.exclusive(self.layout.entry_lock(found.digest)):
            self._remove(found.digest)
            return True
        return False

    def _remove(self, digest: str) -> None:
        name = self.layout.entry(digest).name
        for path in (self.views / name, self.layout.relocated(digest), self.layout.entry(digest)):
            self.discard(path)
        with suppress(OSError):
            (self.mounts / name).rmdir()
        self.layout.entry_lock(digest).unlink()

    def new_copy(self, digest: str) -> Path:
        """Return the path of a new private copy, which lasts as long as this process.

        Raises:
            CommandFailed: another run takes too long.
        """
        path = self.copies / f"{self.layout.entry(digest).name[:12]}-{secrets.token_hex(8)}"
        retried_while_busy(lambda: locks.shared_beyond_exec(path.with_name(f"{path.name}.lock")))
        return path

    def _remove_earlier_trees(self, digest: str) -> None:
        """Remove the trees of earlier boots, unless a program on any machine uses the cache."""
        trees_of_boots = self.layout.relocated(digest)
        present = list(trees_of_boots.iterdir()) if trees_of_boots.is_dir() else []
        if earlier := [path for path in present if path != self.trees(digest)]:
            with suppress(LockBusy), locks.exclusive(self.layout.entry_lock(digest)):
                for path in earlier:
                    self.discard(path)

    def _remove_unused_locks(self) -> None:
        """Remove the locks of caches that were refused, or whose pull failed."""
        for lock in self._building.parent.iterdir():
            if lock != self._building and not (self.layout.store / lock.name).exists():
                with suppress(LockBusy), locks.exclusive(lock):
                    lock.unlink()

    def _remove_copies(self) -> None:
        """Remove the copies whose programs have ended: their locks are free."""
        for lock in self.copies.glob("*.lock"):
            with suppress(LockBusy), locks.exclusive(lock):
                self.discard(lock.with_suffix(""))
                lock.unlink()


def _last_use(lock: Path) -> float:
    try:
        return lock.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def retried_while_busy(attempt: Callable[[], T], seconds: float = SECONDS) -> T:
    """Call `attempt`, and repeat it while another run holds a lock; return its result.

    Raises:
        CommandFailed: another run holds the lock for too long.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except (LockBusy, RelocationInProgress) as busy:
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"another gkm exec works on the same cache for more than {seconds:g} seconds; "
                    "wait for it, or use another directory with --store"
                ) from busy
        time.sleep(_POLL_SECONDS)
