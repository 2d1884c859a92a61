"""The steps of a removal: the users of an entry, its damage, and the rename to the trash.

The functions take no lock. Their caller (gkm_agent.store.pointers) holds the lock of the store and the entry's file
lock, because only then are pointers and volume records complete.
"""

import errno
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from gkm.hoststate import pointers, records, trees
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.hoststate.pointers import Pointer
from gkm.hoststate.records import VolumeRecord
from gkm.images.pulling import entry

from gkm_agent.store import integrity

_LOG = logging.getLogger(__name__)
_SHOWN_PODS = 5


def named_digests(layout: Layout, retains: Callable[[Pointer], bool]) -> set[str]:
    """Return the digests of the pointers that retain their entry; raises UnreadableState for an unreadable pointer."""
    found = (pointers.load(layout, ref) for ref in pointers.refs(layout))
    return {pointer.digest for pointer in found if pointer is not None and retains(pointer)}


def records_of(layout: Layout, digest: str) -> list[VolumeRecord]:
    """Return the records of the volumes that mount an entry; raises UnreadableState for an unreadable record."""
    return [record for record in records.load_all(layout) if record.digest == digest]


def damage_of(layout: Layout, digest: str, known_path: str) -> str:
    """Return the damage of an entry, "" for an intact or missing one; `known_path` is the file that a check found."""
    try:
        if entry.find(layout, digest) is None:
            return ""
    except UnreadableState as damage:
        return str(damage)
    found = integrity.recheck(layout, digest, known_path) if known_path else None
    return f"{found.path}: {found.cause}" if found is not None else ""


def move_to_trash(layout: Layout, digest: str) -> Path | None:
    """Rename an entry to the trash and return its path there, None for a missing entry."""
    path = layout.entry(digest)
    trash = layout.trash / f"{path.name}.{secrets.token_hex(4)}"
    try:
        path.rename(trash)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    try:
        trees.remove(layout.relocated(digest))
    except OSError as error:
        # The relocated files stay valid for this digest; the next start of the agent removes them.
        _LOG.warning("removal of relocated files failed", extra=fields(digest=digest, why=str(error)))
    # The caller holds this lock: a process that opened the file before finds that it is no longer the entry's lock.
    layout.entry_lock(digest).unlink(missing_ok=True)
    return trash


def pod_names(users: list[VolumeRecord]) -> list[str]:
    """Return the pods of volume records as `namespace/name`, sorted."""
    return sorted({f"{record.pod_namespace}/{record.pod_name}" for record in users})


def pods_text(reader: str | None, users: list[VolumeRecord]) -> str:
    """Return the pods as the users of a namespace may see them: their own by name, others as a number."""
    own = pod_names([record for record in users if record.pod_namespace == reader])
    others, more = len(pod_names(users)) - len(own), len(own) - _SHOWN_PODS
    texts = [", ".join(own[:_SHOWN_PODS])] if own else []
    texts += [f"{more} more of this namespace"] if more > 0 else []
    texts += [f"{others} of other namespaces"] if others else []
    return " and ".join(texts)
