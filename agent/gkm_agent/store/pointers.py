"""The agent's hand on the disk: every pointer it writes passes here.

One lock serializes two operations that the file locks cannot separate, because one process does both: writing a pointer
that names an entry, and withdrawing an entry. After a pointer names an entry, the entry either
exists or is gone as a whole. A pointer that says Ready is never written without its entry.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Condition, Lock

from gkm.api.meta import timestamp
from gkm.hoststate import pointers
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from gkm.images.pulling import entry

from gkm_agent.caches import approvals as checks
from gkm_agent.caches.approvals import Check
from gkm_agent.store.catalog import EntryCatalog

_WAIT_SECONDS = 1.0


class Superseded(Exception):
    """The cache was deleted or changed while it was worked on; what comes of the work is of no use."""


@dataclass(slots=True)
class PullToken:
    """The right to write about one cache, until it is withdrawn."""

    ref: CacheRef
    cancelled: bool = False


@dataclass(slots=True)
class PointerStore:
    """Writes the pointers of one node; `naming` is held by whoever writes one, or withdraws an entry.

    `emptying` is held by whoever deletes what lies in the trash, `holdings` are the notes about the entries.
    """

    layout: Layout
    write_lock: Lock = field(default_factory=Lock)
    trash_lock: Lock = field(default_factory=Lock)
    catalog: EntryCatalog = field(init=False)
    _pulls_changed: Condition = field(default_factory=Condition)
    _active_pulls: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read the notes."""
        self.catalog = EntryCatalog(self.layout)

    def save(self, pointer: Pointer, ticket: PullToken | None = None) -> Pointer:
        """Write a pointer and return it as it was written.

        Raises:
            Superseded: the ticket was withdrawn.
            OSError: the disk refused, or the entry of a pointer that says Ready has been withdrawn meanwhile.
        """
        with self.write_lock:
            _check_token(ticket)
            return self.write_locked(pointer)

    def write_locked(self, pointer: Pointer) -> Pointer:
        """Write a pointer as `save` does; for who holds `naming`."""
        if pointer.state is CacheState.READY:
            self._check_entry(pointer.digest)
        written = replace(pointer, updated=timestamp())
        pointers.save(self.layout, written)
        return written

    def _check_entry(self, digest: str) -> None:
        path = str(self.layout.entry(digest))
        if not entry.exists(self.layout, digest):
            raise FileNotFoundError(errno.ENOENT, "the entry has been withdrawn", path)
        if self.catalog.damage_of(digest):
            raise OSError(errno.EIO, "the entry has been found damaged", path)

    def save_check(self, check: Check, ticket: PullToken) -> None:
        """Write a check; raises as `save`."""
        with self.write_lock:
            _check_token(ticket)
            checks.save(self.layout, ticket.ref, check)

    def cancel(self, ticket: PullToken) -> None:
        """End the right to write about a cache; once this returns, nothing more is written by its holder."""
        with self.write_lock:
            ticket.cancelled = True

    def remove(self, ref: CacheRef) -> None:
        """Remove what is known of a cache: the check first, so that what is left always has a pointer."""
        with self.write_lock:
            self.remove_locked(ref)

    def remove_locked(self, ref: CacheRef) -> None:
        """Remove what is known of a cache as `forget` does; for who holds `naming`."""
        checks.remove(self.layout, ref)
        pointers.remove(self.layout, ref)

    @contextmanager
    def exclusive_pull(self, repository: str, digest: str, ticket: PullToken) -> Iterator[None]:
        """Be the only one who pulls a digest from a repository: a second waits and then finds the entry.

        Nobody waits for another repository: whoever named the digest there first may have chosen a registry that is
        slow for good. Both pull, and the store keeps whose rename comes first.

        Raises:
            Superseded: the ticket was withdrawn in the meantime.
        """
        with self._pulls_changed:
            while (repository, digest) in self._active_pulls:
                _check_token(ticket)
                self._pulls_changed.wait(_WAIT_SECONDS)
            self._active_pulls.add((repository, digest))
        try:
            yield
        finally:
            with self._pulls_changed:
                self._active_pulls.discard((repository, digest))
                self._pulls_changed.notify_all()


def load_pointer(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return a pointer; None also for one that cannot be read, for we are its only writer and will write it anew."""
    try:
        return pointers.load(layout, ref)
    except UnreadableState:
        return None


def _check_token(ticket: PullToken | None) -> None:
    if ticket is not None and ticket.cancelled:
        raise Superseded(str(ticket.ref))
