"""The pointers of one node, and the removal of the entries that they name.

The store is the only writer of pointers. Its lock serializes two operations that file locks cannot separate, because
one process does both: to write a pointer that names an entry, and to remove an entry. So a named entry either exists or
is gone as a whole, and a Ready pointer never lacks its entry. A removal also holds the entry's file lock, because a
publish of the CSI process writes its volume record while it holds that lock shared. One rename to the trash removes the
entry, and a thread deletes the files afterwards (gkm_agent.store.trash).

The steps of a removal take no lock. Their caller holds the lock of the store and the file lock of the entry, because
only then are pointers and volume records complete.
"""

import errno
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from threading import Condition, RLock

from gkm.api.errors import GKMError, Reason
from gkm.api.meta import timestamp
from gkm.hoststate import disk_space, locks, pointers, records, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry

from gkm_agent.caches import approvals
from gkm_agent.caches.approvals import Approval
from gkm_agent.store import integrity
from gkm_agent.store.catalog import EntryCatalog
from gkm_agent.store.eviction import is_evictable
from gkm_agent.store.trash import Trash
from gkm_agent.telemetry import metrics

_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 1.0
_SHOWN_PODS = 5


class Superseded(Exception):
    """The cache object was deleted or changed during the pull, so the result of the pull is not used."""


@dataclass(slots=True)
class PullToken:
    """Allows one pull to write the pointer of one cache, until the agent cancels the token."""

    ref: CacheRef
    cancelled: bool = False

    def check(self) -> None:
        """Raise Superseded if the token is cancelled."""
        if self.cancelled:
            raise Superseded(str(self.ref))


@dataclass(slots=True)
class PointerStore:
    """Writes the pointers and removes the entries of one node. Thread-safe.

    `catalog` records facts about each entry.
    """

    layout: Layout
    catalog: EntryCatalog = field(init=False)
    trash: Trash = field(init=False)
    _lock: RLock = field(default_factory=RLock)
    _pulls_changed: Condition = field(default_factory=Condition)
    _active_pulls: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read the catalog from the disk."""
        self.catalog = EntryCatalog(self.layout)
        self.trash = Trash(self.layout.trash)

    def save(self, pointer: Pointer, token: PullToken | None = None) -> Pointer:
        """Write a pointer with the current time, and return it.

        Raises:
            Superseded: the token is cancelled.
            OSError: a disk operation failed, or the entry of a Ready pointer is removed or damaged.
        """
        with self._lock:
            if token is not None:
                token.check()
            if pointer.state is CacheState.READY:
                self._check_entry(pointer.digest)
            written = replace(pointer, updated=timestamp())
            pointers.save(self.layout, written)
            return written

    def withdraw(self, pointer: Pointer) -> Pointer | None:
        """Write the pointer and return it; on a full disk, remove the cache's current pointer instead and return None.

        Without a pointer no pod mounts the cache: it serves no files whose access is not proven.

        Raises:
            OSError: a disk operation failed for another reason.
        """
        with self._lock:
            try:
                return self.save(pointer)
            except OSError as error:
                if error.errno not in disk_space.FULL:
                    raise
                self.remove(pointer.ref)
                return None

    def save_check(self, check: Approval, token: PullToken) -> None:
        """Write the record that verification approved an image of a cache; raises as `save`."""
        with self._lock:
            token.check()
            approvals.save(self.layout, token.ref, check)

    def cancel(self, token: PullToken) -> None:
        """Cancel a token; after this call its pull can no longer write."""
        with self._lock:
            token.cancelled = True

    def remove(self, ref: CacheRef) -> None:
        """Remove the check and the pointer of a cache."""
        with self._lock:
            # The check first: a check without a pointer would be left over.
            approvals.remove(self.layout, ref)
            pointers.remove(self.layout, ref)

    @contextmanager
    def exclusive_pull(self, repository: str, digest: str, token: PullToken) -> Iterator[None]:
        """Hold the only pull of a digest from a repository: a second pull waits and then finds the entry.

        Pulls of one digest from different repositories do not wait for each other, because one registry may be slow
        forever. Both pull, and the first rename into the store wins.

        Raises:
            Superseded: the token is cancelled while the pull waits.
        """
        with self._pulls_changed:
            while (repository, digest) in self._active_pulls:
                token.check()
                self._pulls_changed.wait(_WAIT_SECONDS)
            self._active_pulls.add((repository, digest))
        try:
            yield
        finally:
            with self._pulls_changed:
                self._active_pulls.discard((repository, digest))
                self._pulls_changed.notify_all()

    def entry_size(self, digest: str) -> int | None:
        """Return the size of an entry in bytes, None for a missing or unreadable one.

        It creates the lock file of the entry, because a full disk could not create it for a later removal.
        """
        try:
            self.layout.entry_lock(digest).touch(0o600)
            found = entry.find(self.layout, digest)
        except (OSError, UnreadableState):
            return None
        return found.size_bytes if found is not None else None

    def collect(self, digest: str, retains: Callable[[Pointer], bool] = lambda _: True) -> bool:
        """Remove an entry that no pointer and no volume record names; return whether it was removed.

        `retains` returns whether a pointer keeps its entry; other pointers are ignored.

        Raises:
            UnreadableState: a record or a pointer is unreadable, so the store removes no entry.
            OSError: a disk operation failed.
        """
        try:
            with self._lock, locks.exclusive(self.layout.entry_lock(digest)):
                if digest in named_digests(self.layout, retains) or records_of(self.layout, digest):
                    return False
                return self._move_to_trash(digest)
        except locks.LockBusy:
            return False

    def evict(self, digest: str) -> bool:
        """Remove an entry as `collect` does, but ignore pointers of caches that fit no GPU of this node."""
        return self.collect(digest, lambda pointer: not is_evictable(pointer))

    def discard(self, digest: str, reader: str | None) -> None:
        """Remove a damaged entry although pointers name it, so that a pull can replace it; keep an entry that is sound.

        The store first takes Ready back from its pointers. `reader` is the namespace whose users read the error, None
        for the users of the whole cluster.

        Raises:
            GKMError: NODE_ERROR while a pod mounts the entry, because the agent never touches a mounted entry.
            UnreadableState: a record is unreadable, so the mounts are unknown.
            OSError: a disk operation failed.
        """
        try:
            # In this order two removals of this process wait for each other; the file lock is never waited for.
            with self._lock, locks.exclusive(self.layout.entry_lock(digest)):
                damage = self._damage(digest)
                if not damage:
                    return
                if users := records_of(self.layout, digest):
                    pods = ", ".join(pod_names(users))
                    _LOG.error("damaged store entry not removed, pods mount it", extra=fields(digest=digest, pods=pods))
                    raise GKMError(
                        Reason.NODE_ERROR,
                        f"the files of this cache on this node are damaged ({damage}), and pods still mount them: "
                        f"{pods_text(reader, users)}",
                        "delete these pods: the agent fetches the cache again when the last of them has gone",
                    )
                self.revoke_ready(digest)
                self._move_to_trash(digest)
        except locks.LockBusy as error:
            raise GKMError(
                Reason.NODE_ERROR,
                "the files of this cache on this node are damaged, and a pod mounts them at this moment",
                "the agent tries again",
            ) from error

    def revoke_ready(self, digest: str) -> None:
        """Replace Ready in all pointers to a damaged entry, so that no further pod mounts it.

        Raises:
            OSError: a disk operation failed.
        """
        with self._lock:
            for ref in pointers.refs(self.layout):
                pointer = load_pointer(self.layout, ref)
                if pointer is not None and pointer.digest == digest and pointer.state is CacheState.READY:
                    message = "its files on this node were damaged and are fetched again"
                    pending = replace(pointer, state=CacheState.PENDING, message=message, progress=0, size_bytes=0)
                    self.withdraw(pending)

    def _check_entry(self, digest: str) -> None:
        path = str(self.layout.entry(digest))
        if not entry.exists(self.layout, digest):
            raise FileNotFoundError(errno.ENOENT, "the entry has been removed", path)
        if self.catalog.damage_of(digest):
            raise OSError(errno.EIO, "the entry is damaged", path)

    def _move_to_trash(self, digest: str) -> bool:
        if not move_to_trash(self.layout, digest):
            return False
        if info := self.catalog.entries().get(digest):
            metrics.GC_BYTES.inc(info.size_bytes)
        self.catalog.remove(digest)
        self.trash.is_emptying()
        return True

    def _damage(self, digest: str) -> str:
        """Return the damage of an entry, "" for an intact or missing one; clear damage that is gone."""
        damage = damage_of(self.layout, digest, self.catalog.damage_of(digest))
        if not damage:
            self.catalog.clear_damage(digest)
        return damage


def load_pointer(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return a pointer; None also if its file is damaged, because the agent will write it again.

    Raises:
        OSError: it cannot be read now (files.PASSING).
    """
    try:
        return pointers.load(layout, ref)
    except UnreadableState:
        return None


def named_digests(layout: Layout, retains: Callable[[Pointer], bool]) -> set[str]:
    """Return the digests that pointers name and `retains` accepts; raises UnreadableState for an unreadable pointer."""
    found = (pointers.load(layout, ref) for ref in pointers.refs(layout))
    return {pointer.digest for pointer in found if pointer is not None and retains(pointer)}


def records_of(layout: Layout, digest: str) -> list[VolumeRecord]:
    """Return the records of the volumes that mount an entry; raises UnreadableState for an unreadable record."""
    return [record for record in records.load_all(layout) if record.digest == digest]


def damage_of(layout: Layout, digest: str, known_path: str) -> str:
    """Return the damage of an entry, "" if it is sound or missing.

    `known_path` is the path of a file that an earlier check found damaged, "" without any.
    """
    try:
        if entry.find(layout, digest) is None:
            return ""
    except UnreadableState as damage:
        return str(damage)
    found = integrity.recheck(layout, digest, known_path) if known_path else None
    return f"{found.path}: {found.cause}" if found is not None else ""


def move_to_trash(layout: Layout, digest: str) -> bool:
    """Rename an entry and its relocated files to the trash; return False for a missing entry."""
    path = layout.entry(digest)
    trash = layout.trash / f"{path.name}.{secrets.token_hex(4)}"
    try:
        path.rename(trash)
    except FileNotFoundError:
        return False
    try:
        trees.remove(layout.relocated_in_memory(digest))
        with suppress(FileNotFoundError):
            layout.relocated(digest).rename(f"{trash}.relocated")
    except OSError as error:
        # The relocated files stay valid for this digest; the next start of the agent removes them.
        _LOG.warning(
            "relocated files of a removed cache not deleted, the next start of the agent deletes them",
            extra=fields(digest=digest, why=str(error)),
        )
    # The caller holds this lock: a process that opened the file before finds that it is no longer the entry's lock.
    layout.entry_lock(digest).unlink(missing_ok=True)
    return True


def pod_names(users: list[VolumeRecord]) -> list[str]:
    """Return the pods of volume records as `namespace/name`, sorted."""
    return sorted({f"{record.pod_namespace}/{record.pod_name}" for record in users})


def pods_text(reader: str | None, users: list[VolumeRecord]) -> str:
    """Return pods for a message to users of namespace `reader`: their own pods by name, other pods as a number."""
    own = pod_names([record for record in users if record.pod_namespace == reader])
    others, more = len(pod_names(users)) - len(own), len(own) - _SHOWN_PODS
    texts = [", ".join(own[:_SHOWN_PODS])] if own else []
    texts += [f"{more} more of this namespace"] if more > 0 else []
    texts += [f"{others} of other namespaces"] if others else []
    return " and ".join(texts)
