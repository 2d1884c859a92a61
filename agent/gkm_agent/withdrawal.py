"""Taking entries out of the store: those that nobody names, and those that are damaged.

Always the same way: alone with the entry's lock, for records are complete only under it (a publish writes its record
while it holds the lock shared), and alone with the desk, for nothing may begin to name what goes. One rename to the
trash withdraws the entry; only then it is deleted.
"""

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.hoststate import locks, pointers, records
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeRecord
from gkm.images import entry

from gkm_agent.desk import Desk, load_pointer

_SHOWN_PODS = 5


def collect(desk: Desk, digest: str) -> bool:
    """Withdraw an entry that neither pointer nor record names, and delete it; return whether it was.

    Raises:
        UnreadableState: a record or a pointer cannot be read; nothing is collected then.
        OSError: the disk refused.
    """
    try:
        with _alone(desk, digest):
            if digest in _named(desk.layout) or _mounting(desk.layout, digest):
                return False
            trash = _withdrawn(desk.layout, digest)
    except locks.Busy:
        return False
    if trash is None:
        return False
    entry.remove_tree(trash)
    return True


def discard(desk: Desk, digest: str) -> None:
    """Withdraw a damaged entry although pointers name it: it is of no use, and stands in the way of a good one.

    What is not damaged stays. Pointers that say Ready are taken back first.

    Raises:
        GKMError: NODE_ERROR while a pod mounts it, for a mounted entry is never touched.
        UnreadableState: a record cannot be read, so nobody can say.
        OSError: the disk refused.
    """
    try:
        with _alone(desk, digest):
            damage = _damage(desk.layout, digest)
            if not damage:
                return
            if users := _mounting(desk.layout, digest):
                raise GKMError(
                    Reason.NODE_ERROR,
                    f"the files of this cache on this node are damaged ({damage}), and pods still mount them: "
                    f"{_pods(users)}",
                    "delete these pods: it is fetched again when the last of them has gone",
                )
            _take_back(desk, digest)
            trash = _withdrawn(desk.layout, digest)
    except locks.Busy as error:
        raise GKMError(
            Reason.NODE_ERROR,
            "the files of this cache on this node are damaged, and a pod is being given them in this moment",
            "it is tried again",
        ) from error
    if trash is not None:
        entry.remove_tree(trash)


@contextmanager
def _alone(desk: Desk, digest: str) -> Iterator[None]:
    # In this order two withdrawals of ours wait for one another: the entry's lock is never waited for.
    with desk.naming, locks.exclusive(desk.layout.entry_lock(digest)):
        yield


def _withdrawn(layout: Layout, digest: str) -> Path | None:
    """Rename an entry to the trash and return where it lies there, None where there is none."""
    path = layout.entry(digest)
    trash = layout.trash / f"{path.name}.{secrets.token_hex(4)}"
    try:
        path.rename(trash)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    # While it is held: whoever opened it before finds that it is no longer the lock of anything.
    layout.entry_lock(digest).unlink(missing_ok=True)
    return trash


def _take_back(desk: Desk, digest: str) -> None:
    """Make no pointer say Ready of this digest; one that cannot be read says nothing."""
    for ref in pointers.refs(desk.layout):
        pointer = load_pointer(desk.layout, ref)
        if pointer is not None and pointer.digest == digest and pointer.state is CacheState.READY:
            why = "its files on this node were damaged and are fetched again"
            desk.write(replace(pointer, state=CacheState.PENDING, message=why, progress=0, size_bytes=0))


def _damage(layout: Layout, digest: str) -> str:
    try:
        entry.find(layout, digest)
    except UnreadableState as damage:
        return str(damage)
    return ""


def _named(layout: Layout) -> set[str]:
    """Return the digests that pointers name; UnreadableState where one cannot be read, so that nobody can say."""
    found = (pointers.load(layout, ref) for ref in pointers.refs(layout))
    return {pointer.digest for pointer in found if pointer is not None}


def _mounting(layout: Layout, digest: str) -> list[VolumeRecord]:
    return [record for record in records.load_all(layout) if record.digest == digest]


def _pods(users: list[VolumeRecord]) -> str:
    pods = sorted({f"{record.pod_namespace}/{record.pod_name}" for record in users})
    more = f" and {len(pods) - _SHOWN_PODS} more" if len(pods) > _SHOWN_PODS else ""
    return f"{', '.join(pods[:_SHOWN_PODS])}{more}"
