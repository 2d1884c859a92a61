"""Taking entries out of the store: those that nobody names or has a use for, and those that are damaged.

Always the same way: alone with the entry's lock, for records are complete only under it (a publish writes its record
while it holds the lock shared), and alone with the desk, for nothing may begin to name what goes. One rename to the
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
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry
from gkm.mounts import relocation

from gkm_agent import integrity, logs, metrics
from gkm_agent.desk import Desk, load_pointer
from gkm_agent.eviction import gives_way

_SHOWN_PODS = 5


def collect(desk: Desk, digest: str) -> bool:
    """Withdraw an entry that neither pointer nor record names, and delete it; return whether it was.

    Raises:
        UnreadableState: a record or a pointer cannot be read; nothing is collected then.
        OSError: the disk refused.
    """
    return _collected(desk, digest, lambda _: True)


def evict(desk: Desk, digest: str) -> bool:
    """Withdraw an entry as `collect` does, also one that only caches name which fit no GPU of this node."""
    return _collected(desk, digest, lambda pointer: not gives_way(pointer))


def _collected(desk: Desk, digest: str, keeps: Callable[[Pointer], bool]) -> bool:
    try:
        with _alone(desk, digest):
            if digest in _named(desk.layout, keeps) or _mounting(desk.layout, digest):
                return False
            trash = _withdrawn(desk, digest)
    except locks.Busy:
        return False
    if trash is None:
        return False
    _delete(desk, trash)
    return True


def discard(desk: Desk, digest: str, reader: str | None) -> None:
    """Withdraw a damaged entry although pointers name it: it is of no use, and stands in the way of a good one.

    What is not damaged stays. Pointers that say Ready are taken back first. `reader` is the namespace whose people
    read what is raised, None for those of the whole cluster.

    Raises:
        GKMError: NODE_ERROR while a pod mounts it, for a mounted entry is never touched.
        UnreadableState: a record cannot be read, so nobody can say.
        OSError: the disk refused.
    """
    try:
        with _alone(desk, digest):
            damage = _damage(desk, digest)
            if not damage:
                return
            if users := _mounting(desk.layout, digest):
                logs.event("damaged, and mounted", level=logging.ERROR, digest=digest, pods=", ".join(_pods(users)))
                raise GKMError(
                    Reason.NODE_ERROR,
                    f"the files of this cache on this node are damaged ({damage}), and pods still mount them: "
                    f"{_pods_for(reader, users)}",
                    "delete these pods: it is fetched again when the last of them has gone",
                )
            _take_back(desk, digest)
            trash = _withdrawn(desk, digest)
    except locks.Busy as error:
        raise GKMError(
            Reason.NODE_ERROR,
            "the files of this cache on this node are damaged, and a pod is being given them in this moment",
            "it is tried again",
        ) from error
    if trash is not None:
        _delete(desk, trash)


def take_back(desk: Desk, digest: str) -> None:
    """Make no pointer say Ready of a digest: its entry is damaged, and no further pod is to be given it.

    Raises:
        OSError: the disk refused.
    """
    with desk.naming:
        _take_back(desk, digest)


def empty_trash(desk: Desk) -> None:
    """Delete what an earlier withdrawal could not; raises OSError when it still cannot be."""
    with desk.emptying:
        for left in desk.layout.trash.iterdir():
            entry.remove_tree(left)


@contextmanager
def _alone(desk: Desk, digest: str) -> Iterator[None]:
    # In this order two withdrawals of ours wait for one another: the entry's lock is never waited for.
    with desk.naming, locks.exclusive(desk.layout.entry_lock(digest)):
        yield


def _withdrawn(desk: Desk, digest: str) -> Path | None:
    """Rename an entry to the trash and return where it lies there, None where there is none."""
    layout = desk.layout
    path = layout.entry(digest)
    trash = layout.trash / f"{path.name}.{secrets.token_hex(4)}"
    try:
        path.rename(trash)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    if note := desk.holdings.notes().get(digest):
        metrics.GC_BYTES.inc(note.size_bytes)
    desk.holdings.forget(digest)
    try:
        relocation.remove(layout.relocated(digest))
    except OSError as error:
        # They are derived and right for the same digest; the next start of the agent takes them away.
        logs.event("relocated files stay", level=logging.WARNING, digest=digest, why=str(error))
    # While it is held: whoever opened it before finds that it is no longer the lock of anything.
    layout.entry_lock(digest).unlink(missing_ok=True)
    return trash


def _delete(desk: Desk, trash: Path) -> None:
    with desk.emptying:
        entry.remove_tree(trash)


def _take_back(desk: Desk, digest: str) -> None:
    """Make no pointer say Ready of this digest; one that cannot be read says nothing."""
    for ref in pointers.refs(desk.layout):
        pointer = load_pointer(desk.layout, ref)
        if pointer is None or pointer.digest != digest or pointer.state is not CacheState.READY:
            continue
        why = "its files on this node were damaged and are fetched again"
        try:
            desk.write(replace(pointer, state=CacheState.PENDING, message=why, progress=0, size_bytes=0))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Nothing can be written, but a cache of which nothing is known is not Ready either.
            desk.drop(ref)


def _damage(desk: Desk, digest: str) -> str:
    try:
        if entry.find(desk.layout, digest) is None:
            return ""
    except UnreadableState as damage:
        return str(damage)
    path = desk.holdings.damaged(digest)
    if not path:
        return ""
    found = integrity.still(desk.layout, digest, path)
    if found is None:
        desk.holdings.clear(digest)
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
