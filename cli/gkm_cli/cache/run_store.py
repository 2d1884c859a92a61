"""The caches of `gkm exec` on this machine: the layout of the agent's store, in a separate directory.

The agent's own store is never used: it belongs to the agent's budget and garbage collection. Several runs of one user
may use one directory at once, also from several machines that share it; a run tries again while another one holds a
lock, never for ever. Entries are verified when they are fetched and not again, so a directory that another user owns,
may write or could replace is refused, as sshd refuses a file of keys (StrictModes). One rule differs: others may write
in a sticky directory above, such as /tmp, because there they can rename only what is theirs.
"""

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gkm.hoststate import files, locks, trees
from gkm.hoststate.layout import Layout
from gkm.hoststate.locks import LockBusy
from gkm.images.pulling import entry
from gkm.images.pulling.entry import StoreEntry
from gkm.mounts.relocation import tree_store
from gkm.mounts.relocation.mount_path import InvalidMountPath, MountPath
from gkm.mounts.relocation.tree_store import RelocationInProgress

from gkm_cli.disks import cache_directory
from gkm_cli.output import CommandFailed, UsageError

MAX_BYTES = 64 << 30
"""Content of all caches without store.maxBytes in the configuration: as much as one image may have."""
_ANY_DIGEST = f"sha256:{'0' * 64}"
PRIVATE, PASSAGE = 0o700, 0o711
"""A program of root may become another user: it passes the directories above its cache, and cannot list them."""
_HINT = "name your own directory with --store"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
T = TypeVar("T")
SECONDS = 60.0
"""Another run holds its locks while it renames directories, removes what a killed run left, or rewrites paths."""
_POLL_SECONDS = 0.1


def default_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of root or of a user."""
    if os.geteuid() == 0:
        return Path("/var/cache/gkm/exec")
    return cache_directory(environment) / "exec"


class RunStore:
    """The caches below one directory."""

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
            raise UsageError(f"the store cannot be there: {error}", "name another directory with --store") from error

    @property
    def mounts(self) -> Path:
        """Return the directory of mount points, one for each cache: an empty directory outside of the programs."""
        return self.layout.state / "mounts"

    @property
    def views(self) -> Path:
        """Return the directory of caches for reading without mounts."""
        return self.layout.state / "views"

    def view(self, digest: str) -> Path:
        """Return the directory of such a cache; another one for each path of the store, because the files name it."""
        return (
            self.views / self.layout.entry(digest).name / sha256(str(self.views).encode("utf-8", "replace")).hexdigest()
        )

    def trees(self, digest: str) -> Path:
        """Return the directory of relocated trees of this boot of this machine: another machine's are in use there."""
        return self.layout.relocated(digest) / tree_store.boot_id()

    @property
    def _all_trees(self) -> Path:
        return self.layout.relocated(_ANY_DIGEST).parent

    @property
    def copies(self) -> Path:
        """Return the directory of private copies, one for each program."""
        return self.layout.state / "copies"

    def make(self) -> None:
        """Make the directories, and remove what killed runs left.

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
        """Hold off the removal of unfinished work.

        Raises:
            CommandFailed: another run takes too long.
        """
        with ExitStack() as stack:
            retried_while_busy(lambda: stack.enter_context(locks.shared(self._building)))
            yield

    def use(self, digest: str) -> None:
        """Hold the entry of a digest until this process ends, even if it becomes another program.

        Raises:
            CommandFailed: another run takes too long.
        """
        path = self.layout.entry_lock(digest)
        self._remove_earlier_trees(digest)
        retried_while_busy(lambda: locks.shared_beyond_exec(path))
        os.utime(path)

    def evict(self, max_bytes: int) -> None:
        """Remove the least recently used caches that no program uses, until all have `max_bytes` together at most.

        Raises:
            OSError: the disk refused.
        """
        self.free(sum(found.size_bytes for found in self._entries()) - max_bytes)

    def free(self, wanted_bytes: int) -> int:
        """Remove the least recently used caches that no program uses, `wanted_bytes` together; return their bytes.

        Raises:
            OSError: the disk refused.
        """
        freed = 0
        for found in sorted(self._entries(), key=lambda found: _last_use(self.layout.entry_lock(found.digest))):
            if freed >= wanted_bytes:
                break
            with suppress(LockBusy), locks.exclusive(self.layout.entry_lock(found.digest)):
                self._remove(found.digest)
                freed += found.size_bytes
        return freed

    def discard(self, path: Path) -> None:
        """Remove a tree: by one rename first, so that a run that is killed here leaves no part of it in its place.

        Raises:
            OSError: the disk refused.
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

    def _entries(self) -> Iterator[StoreEntry]:
        for path in self.layout.store.iterdir():
            # A damaged entry has no known size; a pull of its digest names it.
            with suppress(ValueError):
                if found := entry.find(self.layout, f"sha256:{path.name}"):
                    yield found

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


def make(directory: Path) -> None:
    """Make a directory of this user, by its real path, and those above that are missing.

    Raises:
        UsageError: others could fill or replace it.
        OSError: it cannot be written, is a link, or no directory.
    """
    # From the top: what is made lies in a directory that was checked, and what another made meanwhile is checked too.
    for above in reversed(directory.parents):
        _make(above)
        _check_above(above)
    _make(directory)
    check_own([directory])


def check_own(directories: Iterable[Path]) -> None:
    """Refuse directories that another user could have filled.

    Raises:
        UsageError: one is not this user's, or others may write in it.
        OSError: one is a link, or no directory.
    """
    for directory in directories:
        with files.closing(_opened(directory)) as descriptor:
            status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            why = f"the store {directory} belongs to user {status.st_uid}, who could change caches in it"
            raise UsageError(why, _HINT)
        if status.st_mode & _OTHERS_WRITE:
            why = f"other users may write in the store {directory}"
            raise UsageError(why, f"chmod go-w {directory}, or {_HINT}")


def limit(directories: Iterable[Path], mode: int) -> None:
    """Take the permissions from directories that are not in `mode`: directories of an earlier version had more.

    Raises:
        OSError: one is a link, or no directory.
    """
    for directory in directories:
        with files.closing(_opened(directory)) as descriptor:
            before = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if before & ~mode:
                os.fchmod(descriptor, before & mode)


def _make(directory: Path) -> None:
    if not directory.exists():
        directory.mkdir(PASSAGE if os.geteuid() == _ROOT else PRIVATE, exist_ok=True)


def _check_above(directory: Path) -> None:
    status = directory.stat(follow_symlinks=False)
    if status.st_uid not in {_ROOT, os.geteuid()}:
        why = f"{directory} above the store belongs to user {status.st_uid}, who could replace the store"
        raise UsageError(why, _HINT)
    if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
        why = f"other users may write in {directory} above the store, and could replace it"
        raise UsageError(why, f"chmod go-w {directory}, or {_HINT}")


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def retried_while_busy(attempt: Callable[[], T], seconds: float = SECONDS) -> T:
    """Return what `attempt` returns; repeat it while another run is in the way.

    Raises:
        CommandFailed: it is in the way for too long.
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
