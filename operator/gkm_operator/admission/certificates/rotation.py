"""The certificates of this process, renewed while it runs: a new CA is trusted first, and served by much later.

A crash at any step leaves nothing to mend: a process that starts makes everything anew, and CAs that nobody serves by
leave the bundle when they expire or others need their place.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError

from gkm_operator.admission.certificates import issue as certificates
from gkm_operator.admission.certificates.issue import CertificatePair, IssuedFiles
from gkm_operator.admission.certificates.webhook_ca import trust

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RotationTimes:
    """How long things take. Defaults are what ships; only tests have others."""

    valid: timedelta = certificates.VALID
    renewed: timedelta = certificates.VALID * 2 / 3
    """So long after it was made a pair is due. What is left, a month, is the time to mend an API server that is away or
    a role that was taken away before anybody notices."""

    settle_seconds: float = 300.0
    """From when a CA is trusted until it is served by. API servers watch webhook configurations and see a change within
    a second; one whose watch broke asks again after half a minute at most (client-go's reflector), and then lists. The
    rest is for several of them that start at once; it costs nothing, because the old pair is good for a month more."""

    check_seconds: float = 60.0
    """A configuration that was applied anew has lost our CA, and until it is there again our kinds cannot be written.
    By the wall clock of each look a pair is due or not: a clock that jumps is noticed with the next one."""

    retry_seconds: float = 5.0
    """After a look that failed."""


SHIPPED = RotationTimes()


def is_due(pair: CertificatePair, terms: RotationTimes, now: datetime) -> bool:
    """Return whether another pair must be made: it is old, or the clock was set to before it was good."""
    return not pair.begins <= now < pair.made + terms.renewed


def may_serve(serving: CertificatePair, *, waited: float, found: bool, terms: RotationTimes, now: datetime) -> bool:
    """Return whether a trusted pair replaces the one that serves.

    `waited` are the seconds since its CA was trusted, `found` says that it was so at this look. While the other pair is
    good there is no haste; when it is not, because the clock jumped, no client takes it and each second counts.
    """
    return not serving.is_valid(now) or (found and waited >= terms.settle_seconds)


@dataclass(frozen=True, slots=True)
class _Next:
    """The pair that will serve; `trusted` is when its CA was first in the bundle, by a clock that nobody sets."""

    pair: CertificatePair
    trusted: float | None = None


class Rotation:
    """One pair serves, and at most one waits to. For one thread."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        terms: RotationTimes = SHIPPED,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the first pair and write it to `directory`.

        Raises:
            OSError: the directory cannot be written.
        """
        self._directory = directory
        self._names = names
        self._terms = terms
        self._now = now
        self._elapsed = elapsed
        self._serving = self._make()
        self._next: _Next | None = None
        self.files: IssuedFiles = certificates.write(directory, self._serving)

    def run(self, api: Api, configuration: str, stop: Event, trusted: Callable[[], object]) -> None:
        """Look again and again until `stop`; call `trusted` once, when the API server was told of the CA that serves.

        Never raises for what the API server or the disk answers: the process serves on, and looks again.
        """
        said, told = "", False
        while True:
            try:
                self.check(api, configuration)
            except (ApiError, OSError) as error:
                pause = self._terms.retry_seconds
                if str(error) != said:
                    said = str(error)
                    _LOG.warning("CA not trusted", extra=fields(configuration=configuration, why=said))
            else:
                pause, said = self._terms.check_seconds, ""
                if not told:
                    trusted()
                told = True
            if stop.wait(pause):
                return

    def check(self, api: Api, configuration: str) -> None:
        """See to it that our CAs are trusted, make a pair when one is due, and serve by it when that is safe.

        Raises:
            ApiError: the API server does not tell or does not take it; what serves, serves on.
            OSError: the files cannot be written; the server keeps the pair that it has in memory.
        """
        now = self._now()
        if is_due(self._next.pair if self._next else self._serving, self._terms, now):
            self._next = _Next(self._make())
        if self._next is None:
            trust(api, configuration, [self._serving.authority], now)
            return
        found = trust(api, configuration, [self._next.pair.authority, self._serving.authority], now)
        if self._next.trusted is None:
            self._next = replace(self._next, trusted=self._elapsed())
        waited = self._elapsed() - (self._next.trusted or 0.0)
        if may_serve(self._serving, waited=waited, found=found, terms=self._terms, now=now):
            self.files = certificates.write(self._directory, self._next.pair)
            self._serving, self._next = self._next.pair, None
            _LOG.info("certificate renewed", extra=fields(until=self._serving.ends.isoformat()))

    def _make(self) -> CertificatePair:
        return certificates.make(self._names, self._now(), self._terms.valid)
