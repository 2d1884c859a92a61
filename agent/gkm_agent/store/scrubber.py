"""The slow check of the store: one entry at a time, at a bounded rate, over and over.

What was there before this boot is measured first, names and sizes only: that is what a power cut spoils. Then every
content is read once in `store.checkInterval`. What is found damaged is written into the notes and taken back from the
pointers at once; withdrawing and fetching it again is the agent's (gkm_agent.store.removal).
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields

from gkm_agent.store import integrity
from gkm_agent.store import removal as withdrawal
from gkm_agent.store.catalog import EntryInfo
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

BYTES_PER_SECOND = 8 << 20
"""Below what a disk does beside other work, and under 1 % of a core for hashing."""
LOOK_SECONDS = 10.0
"""At least so often the thread looks for what is due."""
REQUEST = "check"
"""A file of this name in the state directory asks for a check of everything, now; it is removed when that begins."""


class Stopped(Exception):
    """The agent ends."""


@dataclass(frozen=True, slots=True)
class DueCheck:
    """The next entry to check: its whole `content`, or names and sizes alone."""

    digest: str
    content: bool


def due(notes: Mapping[str, EntryInfo], now: float, interval: float, boot: str) -> DueCheck | None:
    """Return what to check now: first what this boot has not seen, then what was read longest ago. Pure."""
    whole = {digest: note for digest, note in notes.items() if not note.damage}
    unseen = sorted(digest for digest, note in whole.items() if not boot or note.boot != boot)
    if unseen and boot:
        return DueCheck(unseen[0], content=False)
    # A time that is still to come means that the clock was set back.
    late = {
        digest: note
        for digest, note in whole.items()
        if not note.checked or not note.checked <= now < note.checked + interval
    }
    if not late or not interval:
        return None
    return DueCheck(min(late, key=lambda digest: (late[digest].checked, digest)), content=True)


class Scrubber:
    """Checks in a thread of its own; `changed` is set when something is found."""

    def __init__(
        self,
        store: PointerStore,
        changed: Event,
        interval: float,
        *,
        clock: Callable[[], float] = time.time,
        rate: float = BYTES_PER_SECOND,
    ) -> None:
        self._store = store
        self._changed = changed
        self._interval = interval
        self._clock = clock
        self._rate = rate
        self._asked = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="store check", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Check no more; a check under way ends at its next piece."""
        self._stop.set()

    def step(self) -> bool:
        """Check one entry if one is due; return whether one was.

        Raises:
            Stopped: it was stopped meanwhile.
        """
        self._take_request()
        holdings = self._store.catalog
        # On demand every content counts as unread; then the interval counts again.
        interval = self._interval or (1e12 if self._asked else 0.0)
        next_one = due(holdings.entries(), self._clock(), interval, holdings.boot)
        if next_one is None:
            self._asked = False
            return False
        self._check(next_one)
        return True

    def _take_request(self) -> None:
        request = self._store.layout.state / REQUEST
        try:
            request.unlink()
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return
        _LOG.info("every entry of the store is checked, as asked")
        self._store.catalog.request_check()
        self._asked = True

    def _check(self, due: DueCheck) -> None:
        look = integrity.read if due.content else integrity.measured
        # Names and sizes are read at full speed: that is what makes a start after a power cut safe.
        try:
            damage = look(self._store.layout, due.digest, self._throttle if due.content else None)
        except FileNotFoundError:
            self._store.catalog.remove(due.digest)
            return
        if damage is not None and not self._store.layout.entry(due.digest).exists():
            self._store.catalog.remove(due.digest)  # collected under our hands
            return
        path = damage.path if damage is not None else ""
        self._store.catalog.record_check(due.digest, damage=path, content=due.content, now=self._clock())
        if damage is None:
            return
        _LOG.error("a store entry is damaged", extra=fields(digest=due.digest, file=damage.path, why=damage.why))
        try:
            withdrawal.revoke_ready(self._store, due.digest)
        except OSError as error:
            _LOG.error("pointers not taken back", extra=fields(digest=due.digest, why=str(error)))
        self._changed.set()

    def _throttle(self, cost: int) -> None:
        if self._stop.wait(cost / self._rate):
            raise Stopped

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                checked = self.step()
            except Stopped:
                return
            except (OSError, UnreadableState) as error:
                _LOG.error("the store cannot be checked", extra=fields(why=str(error)))
                checked = False
            except Exception:  # noqa: BLE001 -- a thread that ends checks nothing ever again, and nobody notices
                _LOG.exception("the check of the store failed")
                checked = False
            if not checked:
                self._stop.wait(LOOK_SECONDS)
