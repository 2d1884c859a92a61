"""Taking entries out of the store: those that nobody names or has a use for, and those that are damaged.

Always the same way: alone with the entry's lock, for records are complete only under it (a publish writes its record
while it holds the lock shared), and alone with the store, for nothing may begin to name what goes. One rename to the
trash withdraws the entry; only then it is deleted.
"""

import errno
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import locks, pointers, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry
from gkm.mounts.relocation import tree_store as relocation

from gkm_agent.store import integrity
from gkm_agent.store.eviction import is_evictable
from gkm_agent.store.pointers import PointerStore, load_pointer
from gkm_agent.telemetry import metrics

_LOG = logging.getLogger(__name__)

_SHOWN_PODS = 5


def collect(store: PointerStore, digest: str) -> bool:
    """Withdraw an entry that neither pointer nor record names, and delete it; return whether it was.

    Raises:
        UnreadableState: a record or a pointer cannot be read; nothing is collected then.
        OSError: the disk refused.
    """
    return _collect(store, digest, lambda _: True)


def evict(store: PointerStore, digest: str) -> bool:
    """Withdraw an entry as `collect` does, also one that only caches name which fit no GPU of this node."""
    return _collect(store, digest, lambda pointer: not is_evictable(pointer))


def _collect(store: PointerStore, digest: str, keeps: Callable[[Pointer], bool]) -> bool:
    try:
        with _is_unused(store, digest):
            if digest in _named(store.layout, keeps) or _mounting(store.layout, digest):
                return False
            trash = _move_to_trash(store, digest)
    except locks.LockBusy:
        return False
    if trash is None:
        return False
    _delete(store, trash)
    return True


def discard(store: PointerStore, digest: str, reader: str | None) -> None:
    """Withdraw a damaged entry although pointers name it: it is of no use, and stands in the way of a good one.

    What is not damaged stays. Pointers that say Ready are taken back first. `reader` is the namespace whose people
    read what is raised, None for those of the whole cluster.

    Raises:
        GKMError: NODE_ERROR while a pod mounts it, for a mounted entry is never touched.
        UnreadableState: a record cannot be read, so nobody can say.
        OSError: the disk refused.
    """
    try:
        with _is_unused(store, digest):
            damage = _damage(store, digest)
            if not damage:
                return
            if users := _mounting(store.layout, digest):
                _LOG.error("damaged, and mounted", extra=fields(digest=digest, pods=", ".join(_pods(users))))
                raise GKMError(
                    Reason.NODE_ERROR,
                    f"the files of this cache on this node are damaged ({damage}), and pods still mount them: "
                    f"{_pods_for(reader, users)}",
                    "delete these pods: it is fetched again when the last of them has gone",
                )
            _revoke_ready(store, digest)
            trash = _move_to_trash(store, digest)
    except locks.LockBusy as error:
        raise GKMError(
            Reason.NODE_ERROR,
            "the files of this cache on this node are damaged, and a pod is being given them in this moment",
            "it is tried again",
        ) from error
    if trash is not None:
        _delete(store, trash)


def revoke_ready(store: PointerStore, digest: str) -> None:
    """Make no pointer say Ready of a digest: its entry is damaged, and no further pod is to be given it.

    Raises:
        OSError: the disk refused.
    """
    with store.write_lock:
        _revoke_ready(store, digest)


def empty_trash(store: PointerStore) -> None:
    """Delete what an earlier withdrawal could not; raises OSError when it still cannot be."""
    with store.trash_lock:
        for left in store.layout.trash.iterdir():
            entry.remove_tree(left)


@contextmanager
def _is_unused(store: PointerStore, digest: str) -> Iterator[None]:
    # In this order two withdrawals of ours wait for one another: the entry's lock is never waited for.
    with store.write_lock, locks.exclusive(store.layout.entry_lock(digest)):
        yield


def _move_to_trash(store: PointerStore, digest: str) -> Path | None:
    """Rename an entry to the trash and return where it lies there, None where there is none."""
    layout = store.layout
    path = layout.entry(digest)
    trash = layout.trash / f"{path.name}.{secrets.token_hex(4)}"
    try:
        path.rename(trash)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    if note := store.catalog.entries().get(digest):
        metrics.GC_BYTES.inc(note.size_bytes)
    store.catalog.remove(digest)
    try:
        relocation.remove(layout.relocated(digest))
    except OSError as error:
        # They are derived and right for the same digest; the next start of the agent takes them away.
        _LOG.warning("relocated files stay", extra=fields(digest=digest, why=str(error)))
    # While it is held: whoever opened it before finds that it is no longer the lock of anything.
    layout.entry_lock(digest).unlink(missing_ok=True)
    return trash


def _delete(store: PointerStore, trash: Path) -> None:
    with store.trash_lock:
        entry.remove_tree(trash)


def _revoke_ready(store: PointerStore, digest: str) -> None:
    """Make no pointer say Ready of this digest; one that cannot be read says nothing."""
    for ref in pointers.refs(store.layout):
        pointer = load_pointer(store.layout, ref)
        if pointer is None or pointer.digest != digest or pointer.state is not CacheState.READY:
            continue
        why = "its files on this node were damaged and are fetched again"
        try:
            store.write_locked(replace(pointer, state=CacheState.PENDING, message=why, progress=0, size_bytes=0))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Nothing can be written, but a cache of which nothing is known is not Ready either.
            store.remove_locked(ref)


def _damage(store: PointerStore, digest: str) -> str:
    try:
        if entry.find(store.layout, digest) is None:
            return ""
    except UnreadableState as damage:
        return str(damage)
    path = store.catalog.damage_of(digest)
    if not path:
        return ""
    found = integrity.still(store.layout, digest, path)
    if found is None:
        store.catalog.clear_damage(digest)
        return ""
    return f"{found.path}: {found.why}"


def _named(layout: Layout, keeps: Callable[[Pointer], bool]) -> set[str]:
    """Return the digests that pointers keep; UnreadableState where one cannot be read, so that nobody can say."""
    found = (pointers.load(layout, ref) for ref in pointers.refs(layout))
    return {pointer.digest for pointer in found if pointer is not None and keeps(pointer)}


def _mounting(layout: Layout, digest: str) -> list[VolumeRecord]:
    return [record for record in records.load_all(layout) if record.digest == digest]


def _pods(users: list[VolumeRecord]) -> list[str]:
    return sorted({f"{record.pod_namespace}/{record.pod_name}" for record in users})


def _pods_for(reader: str | None, users: list[VolumeRecord]) -> str:
    """Return the pods as a namespace may read of them: its own by name, those of others as a number."""
    own = _pods([record for record in users if record.pod_namespace == reader])
    others, more = len(_pods(users)) - len(own), len(own) - _SHOWN_PODS
    texts = [", ".join(own[:_SHOWN_PODS])] if own else []
    texts += [f"{more} more of this namespace"] if more > 0 else []
    texts += [f"{others} of other namespaces"] if others else []
    return " and ".join(texts)
