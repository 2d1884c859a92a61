"""Renews the certificate of this process: the API server trusts a new CA first, and the server uses it much later.

A crash at any step needs no repair: a starting process issues everything anew, and unused CAs leave the bundle when
they expire or when others need their places.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

from gkm.api.installation import ADMISSION_CA, CONTROLLERS
from gkm.hoststate.logs import fields
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.secrets import DEFAULT_NAMESPACE

from gkm_operator import metrics
from gkm_operator.admission.certificates import issue
from gkm_operator.admission.certificates.issue import CertificatePair
from gkm_operator.admission.certificates.published_ca import distrusting, publish
from gkm_operator.webhooks import WebhookConfiguration

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RotationTimes:
    """The periods of a rotation. The defaults are the shipped values; only tests use others."""

    valid: timedelta = issue.VALID
    renewed: timedelta = issue.VALID * 2 / 3
    """Age at which a pair is due for renewal. The rest, a month, is the time to notice and repair an unavailable API
    server or a removed role."""

    settle_seconds: float = 300.0
    """From when a CA is trusted until the server uses it. API servers watch webhook configurations and see a change
    within a second; one whose watch broke retries after half a minute at most (client-go's reflector), and then lists.
    The rest covers several that start at once; it costs nothing, because the old pair is valid for another month."""

    check_seconds: float = 60.0
    """A ConfigMap that was deleted has lost our CA. Each check compares a pair with the wall clock, so a clock that
    jumps is noticed by the next check."""

    copy_seconds: float = 1.0
    """After a check that published a CA, or that waits for the controllers to copy it."""

    retry_seconds: float = 5.0
    """After a check that failed."""


SHIPPED = RotationTimes()


def is_due(pair: CertificatePair, times: RotationTimes, now: datetime) -> bool:
    """Return whether a new pair is needed: the present one is old, or the clock was set to before its validity."""
    return not pair.begins <= now < pair.made + times.renewed


class NotTrusted(RuntimeError):
    """The API server does not trust the serving certificate yet."""


def may_serve(serving: CertificatePair, *, waited: float | None, times: RotationTimes, now: datetime) -> bool:
    """Return whether the next pair replaces the serving one.

    `waited` is the time in seconds since its CA was trusted; None if this check did not find the CA in all bundles.
    While the serving pair is valid there is no hurry; when it is not, because the clock jumped, clients reject it and
    each second counts.
    """
    return not serving.is_valid(now) or (waited is not None and waited >= times.settle_seconds)


class Rotation:
    """One pair serves, and at most one waits. For one thread."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        times: RotationTimes = SHIPPED,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.monotonic,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        """Issue the first pair and write it to `directory`.

        Raises:
            OSError: the directory cannot be written.
        """
        self._directory = directory
        self._names = names
        self._times = times
        self._now = now
        self._elapsed = elapsed
        self._namespace = namespace
        self._serving = self._make()
        self._next: CertificatePair | None = None
        self._next_trusted: float | None = None
        """When the CA of the next pair was first in all bundles, by the monotonic clock."""
        issue.write(directory, self._serving)

    def run(
        self,
        api: Api,
        configurations: Sequence[WebhookConfiguration],
        stop: Event,
        trusted: Callable[[], object],
    ) -> None:
        """Check periodically until `stop`; call `trusted` once, when the API server trusts the serving CA.

        Never raises for errors of the API server or the disk: the process goes on serving, and checks again.
        """
        last_error, reported = "", False
        while True:
            try:
                pause = self._times.check_seconds if self.check(api, configurations) else self._times.copy_seconds
            except (ApiError, OSError, NotTrusted) as error:
                pause = self._times.copy_seconds if isinstance(error, NotTrusted) else self._times.retry_seconds
                if str(error) != last_error:
                    last_error = str(error)
                    _LOG.warning("CA not trusted", extra=fields(why=last_error))
            else:
                last_error = ""
                metrics.succeeded("certificate")
                if not reported:
                    trusted()
                reported = True
            if stop.wait(pause):
                return

    def check(self, api: Api, configurations: Sequence[WebhookConfiguration]) -> bool:
        """Publish our CAs, issue a pair when one is due, and serve it when that is safe.

        Return whether all CAs were published and trusted before.

        Raises:
            ApiError: the API server does not answer or refuses; the server keeps its certificate.
            NotTrusted: the controllers have not copied the CA of the serving pair.
            OSError: the files cannot be written; the server keeps the pair that it has in memory.
        """
        now = self._now()
        if is_due(self._next or self._serving, self._times, now):
            self._next, self._next_trusted = self._make(), None
        pairs = [pair for pair in (self._next, self._serving) if pair]
        published = publish(api, self._namespace, configurations, [pair.authority for pair in pairs], now)
        is_next_trusted = self._next is None or self._serve_next(api, configurations, self._next, now)
        if missing := distrusting(api, configurations, [self._serving.authority]):
            raise NotTrusted(
                f"{missing[0]} has no CA of this replica yet: {CONTROLLERS} copies it from the ConfigMap "
                f"{ADMISSION_CA}; see kubectl logs -n {self._namespace} deployment/{CONTROLLERS}"
            )
        return published and is_next_trusted

    def _serve_next(
        self, api: Api, configurations: Sequence[WebhookConfiguration], pair: CertificatePair, now: datetime
    ) -> bool:
        """Serve the next pair when that is safe; return whether its CA is trusted."""
        is_trusted = not distrusting(api, configurations, [pair.authority])
        if self._next_trusted is None and is_trusted:
            self._next_trusted = self._elapsed()
        waited = self._elapsed() - self._next_trusted if is_trusted and self._next_trusted is not None else None
        if may_serve(self._serving, waited=waited, times=self._times, now=now):
            issue.write(self._directory, pair)
            self._serving, self._next = pair, None
            _LOG.info("certificate renewed", extra=fields(until=pair.ends.isoformat()))
        return is_trusted

    def _make(self) -> CertificatePair:
        return issue.make(self._names, self._now(), self._times.valid)
