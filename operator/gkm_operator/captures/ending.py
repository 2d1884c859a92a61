"""The end of captured caches: each decision is compared with the cache anew, and a failure delays no other cache."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff, Clock
from gkm.kube.errors import ApiError

from gkm_operator.captures.observed import ObservedCaptures
from gkm_operator.captures.retention import RetentionVerdict
from gkm_operator.captures.writer import CaptureWriter

_LOG = logging.getLogger(__name__)

ENDS_PER_PASS: Final = 8
"""Caches that one pass ends."""
_NEXT_PASS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _EndAttempt:
    count: int
    next_try: float


class EndedCaptures(NamedTuple):
    """The result of one pass: `changed` says which cache has changed since the decision, "" without one.

    `pause` is the number of seconds until the next one is due, infinite without one.
    """

    changed: str
    pause: float


class CaptureEnder:
    """Ends caches. One thread at a time."""

    def __init__(self, observed: ObservedCaptures, writer: CaptureWriter, *, clock: Clock, backoff: Backoff) -> None:
        self._observed = observed
        self._writer = writer
        self._clock = clock
        self._backoff = backoff
        self._attempts: dict[str, dict[str, _EndAttempt]] = {}
        """By namespace and uid, of the caches that are to end now."""

    def end(self, namespace: str, ended: Sequence[RetentionVerdict]) -> EndedCaptures:
        """End caches of a namespace. Those that were tried before come last.

        Each attempt begins a pause, also one that succeeded: an object with finalizers stays.
        """
        uids = {verdict.cache.uid for verdict in ended}
        attempts = {uid: each for uid, each in self._attempts.pop(namespace, {}).items() if uid in uids}
        if uids:
            self._attempts[namespace] = attempts
        now = self._clock()
        next_try = {uid: each.next_try for uid, each in attempts.items()}
        due = [verdict for verdict in ended if next_try.get(verdict.cache.uid, now) <= now]
        due.sort(key=lambda verdict: next_try.get(verdict.cache.uid, float("-inf")))
        unchanged = [verdict for verdict in due if self._observed.is_unchanged(verdict.cache)]
        changed = [verdict for verdict in due if verdict not in unchanged]
        for verdict in unchanged[:ENDS_PER_PASS]:
            self._end(verdict)
            uid = verdict.cache.uid
            count = attempts[uid].count + 1 if uid in attempts else 1
            attempts[uid] = _EndAttempt(count, self._clock() + self._backoff.pause(count))
        pauses = [each.next_try - self._clock() for each in attempts.values()]
        if len(unchanged) > ENDS_PER_PASS:
            pauses.append(0.0)
        return EndedCaptures(
            f"{changed[0].cache.key} has changed since" if changed else "",
            max(_NEXT_PASS_SECONDS, min(pauses, default=float("inf"))),
        )

    def _end(self, verdict: RetentionVerdict) -> None:
        logged = fields(cache=str(verdict.cache.key), reason=verdict.reason.value)
        try:
            self._writer.end(verdict)
        except ApiError as error:
            _LOG.warning("captured cache not ended", extra=logged | fields(why=str(error)))
            return
        _LOG.info("captured cache ended", extra=logged)
