"""The agent's hand on the disk: every pointer it writes passes here.

One lock keeps two things apart that the file locks cannot, because both are ours: naming an entry in a pointer, and
withdrawing one (gkm_agent.withdrawal). Whoever has named an entry can rely on finding it, or on its not being there at
all; and a pointer that says Ready is never written without its entry.
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

from gkm_agent import checks
from gkm_agent.checks import Check
from gkm_agent.holdings import Holdings

_WAIT_SECONDS = 1.0


class Superseded(Exception):
    """The cache was deleted or changed while it was worked on; what comes of the work is of no use."""


@dataclass(slots=True)
class Ticket:
    """The right to write about one cache, until it is withdrawn."""

    ref: CacheRef
    withdrawn: bool = False


@dataclass(slots=True)
class Desk:
    """Writes the pointers of one node; `naming` is held by whoever writes one, or withdraws an entry.

    `emptying` is held by whoever deletes what lies in the trash, `holdings` are the notes about the entries.
    """

    layout: Layout
    naming: Lock = field(default_factory=Lock)
    emptying: Lock = field(default_factory=Lock)
    holdings: Holdings = field(init=False)
    _pulling: Condition = field(default_factory=Condition)
    _pulled: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Read the notes."""
        self.holdings = Holdings(self.layout)

    def save(self, pointer: Pointer, ticket: Ticket | None = None) -> Pointer:
        """Write a pointer and return it as it was written.

        Raises:
            Superseded: the ticket was withdrawn.
            OSError: the disk refused, or the entry of a pointer that says Ready has been withdrawn meanwhile.
        """
        with self.naming:
            _check(ticket)
            return self.write(pointer)

    def write(self, pointer: Pointer) -> Pointer:
        """Write a pointer as `save` does; for who holds `naming`."""
        if pointer.state is CacheState.READY:
            self._check_entry(pointer.digest)
        written = replace(pointer, updated=timestamp())
        pointers.save(self.layout, written)
        return written

    def _check_entry(self, digest: str) -> None:
        path = str(self.layout.entry(digest))
        if not entry.is_there(self.layout, digest):
            raise FileNotFoundError(errno.ENOENT, "the entry has been withdrawn", path)
        if self.holdings.damaged(digest):
            raise OSError(errno.EIO, "the entry has been found damaged", path)

    def save_check(self, check: Check, ticket: Ticket) -> None:
        """Write a check; raises as `save`."""
        with self.naming:
            _check(ticket)
            checks.save(self.layout, ticket.ref, check)

    def withdraw(self, ticket: Ticket) -> None:
        """End the right to write about a cache; once this returns, nothing more is written by its holder."""
        with self.naming:
            ticket.withdrawn = True

    def forget(self, ref: CacheRef) -> None:
        """Remove what is known of a cache: the check first, so that what is left always has a pointer."""
        with self.naming:
            self.drop(ref)

    def drop(self, ref: CacheRef) -> None:
        """Remove what is known of a cache as `forget` does; for who holds `naming`."""
        checks.remove(self.layout, ref)
        pointers.remove(self.layout, ref)

    @contextmanager
    def pulling(self, repository: str, digest: str, ticket: Ticket) -> Iterator[None]:
        """Be the only one who pulls a digest from a repository: a second waits and then finds the entry.

        Nobody waits for another repository: whoever named the digest there first may have chosen a registry that is
        slow for good. Both pull, and the store keeps whose rename comes first.

        Raises:
            Superseded: the ticket was withdrawn in the meantime.
        """
        with self._pulling:
            while (repository, digest) in self._pulled:
                _check(ticket)
                self._pulling.wait(_WAIT_SECONDS)
            self._pulled.add((repository, digest))
        try:
            yield
        finally:
            with self._pulling:
                self._pulled.discard((repository, digest))
                self._pulling.notify_all()


def load_pointer(layout: Layout, ref: CacheRef) -> Pointer | None:
    """Return a pointer; None also for one that cannot be read, for we are its only writer and will write it anew."""
    try:
        return pointers.load(layout, ref)
    except UnreadableState:
        return None


def _check(ticket: Ticket | None) -> None:
    if ticket is not None and ticket.withdrawn:
        raise Superseded(str(ticket.ref))
