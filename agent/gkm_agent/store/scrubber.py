"""The scrubber: checks the store one entry at a time, at a bounded rate, without end.

It first checks names and sizes of the entries from before this boot, because a power cut damages those. Then it reads
the content of every entry once in `store.checkInterval`. It records damage in the catalog and takes Ready back from the
pointers at once; the reconcile loop then fetches the entry again.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread

from gkm.hoststate.files import UnreadableState
from gkm.hoststate.logs import fields

from gkm_agent.store import integrity
from gkm_agent.store.catalog import EntryInfo
from gkm_agent.store.pointers import PointerStore

_LOG = logging.getLogger(__name__)

BYTES_PER_SECOND = 8 << 20
"""Rate of the check: a disk sustains it beside other work, and hashing takes under 1 % of a core."""
POLL_SECONDS = 10.0
"""Interval in seconds at which the scrubber looks for an entry to check."""


class Stopped(Exception):
    """The scrubber is being stopped."""


@dataclass(frozen=True, slots=True)
class DueCheck:
    """The next entry to check: with `content` every byte, otherwise names and sizes only."""

    digest: str
    content: bool


def due(entries: Mapping[str, EntryInfo], now: float, interval: float, boot: str) -> DueCheck | None:
    """Return the next entry to check: first any not checked since boot, then the entry with the oldest check. Pure."""
    intact = {digest: info for digest, info in entries.items() if not info.damage}
    unseen = sorted(digest for digest, info in intact.items() if not boot or info.boot != boot)
    if unseen and boot:
        return DueCheck(unseen[0], content=False)
    # A time in the future means that the clock was set back.
    late = {
        digest: info
        for digest, info in intact.items()
        if not info.checked or not info.checked <= now < info.checked + interval
    }
    if not late or not interval:
        return None
    return DueCheck(min(late, key=lambda digest: (late[digest].checked, digest)), content=True)


class Scrubber:
    """A thread that checks the entries of the store; sets `changed` when it finds damage."""

    def __init__(
        self,
        store: PointerStore,
        changed: Event,
        interval: float,
        *,
        clock: Callable[[], float],
        rate: float = BYTES_PER_SECOND,
    ) -> None:
        self._store = store
        self._changed = changed
        self._interval = interval
        self._clock = clock
        self._rate = rate
        self._requested = False
        self._stop = Event()
        self._thread = Thread(target=self._run, name="store check", daemon=True)

    def start(self) -> None:
        """Start the thread; return at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a check in progress ends at its next piece."""
        self._stop.set()

    def step(self) -> bool:
        """Check one entry if a check is due; return whether a check was due.

        Raises:
            Stopped: `stop` was called during the check.
        """
        self._take_request()
        catalog = self._store.catalog
        # A request marks every content as unchecked, also without an interval.
        interval = self._interval or (1e12 if self._requested else 0.0)
        next_check = due(catalog.entries(), self._clock(), interval, catalog.boot)
        if next_check is None:
            self._requested = False
            return False
        self._check(next_check)
        return True

    def _take_request(self) -> None:
        request = self._store.layout.check_request
        try:
            request.unlink()
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return
        _LOG.info("check of all store entries requested")
        self._store.catalog.request_check()
        self._requested = True

    def _check(self, due: DueCheck) -> None:
        try:
            if due.content:
                damage = integrity.check(self._store.layout, due.digest, self._throttle)
            else:
                # At full speed, because it makes a start after a power cut safe.
                damage = integrity.check(self._store.layout, due.digest, content=False)
        except FileNotFoundError:
            self._store.catalog.remove(due.digest)
            return
        if damage is not None and not self._store.layout.entry(due.digest).exists():
            self._store.catalog.remove(due.digest)  # collected during the check
            return
        path = damage.path if damage is not None else ""
        self._store.catalog.record_check(due.digest, damage=path, content=due.content, now=self._clock())
        if damage is None:
            return
        _LOG.error(
            "damaged store entry found by a check, to be downloaded again",
            extra=fields(digest=due.digest, file=damage.path, why=damage.cause),
        )
        try:
            self._store.revoke_ready(due.digest)
        except OSError as error:
            _LOG.error(
                "pointers to a damaged store entry not changed, pods may mount it",
                extra=fields(digest=due.digest, why=str(error)),
            )
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
                _LOG.error("check of store entries failed, tried again", extra=fields(why=str(error)))
                checked = False
            except Exception:  # noqa: BLE001 -- a defect must not end the thread, which no other code would restart
                _LOG.exception("check of store entries failed, tried again")
                checked = False
            if not checked:
                self._stop.wait(POLL_SECONDS)
