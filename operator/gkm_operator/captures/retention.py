"""Which captures of a namespace have a cache object: those to register, to retain and to end. Pure.

Only registered captures, which are proven, count against each other: what nodes announce without proof displaces
nothing. The time of a registered capture is the signed one, which no announcement and no pass changes. An announced
capture is compared with it twice: by the announced time, whether a proof is worth its cost, and by the signed time
before it is registered. So what ended is not registered again while nodes still announce it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from gkm.api.capture_settings import CapturedCaches
from gkm.api.meta import timestamp

from gkm_operator.captures.objects import Announcement, CapturedCache

MAX_PER_NAMESPACE: Final = 128
"""Captures of one namespace that have cache objects, the newest. Each one is pulled by every node of its hardware."""


class RetentionReason(StrEnum):
    """Reasons of the condition Retained of a captured cache (docs/reference/reasons.md)."""

    CURRENT = "Current"
    IN_USE = "InUse"
    NAMED_BY_CACHE = "NamedByCache"
    EXPIRED = "Expired"
    SUPERSEDED = "Superseded"
    NOT_OFFERED = "NotOffered"


class RetentionVerdict(NamedTuple):
    """Why a captured cache stays, or ends."""

    cache: CapturedCache
    reason: RetentionReason
    message: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to do for the captures of one namespace."""

    register: Sequence[Announcement]
    """Those without a cache object that should have one, the newest first. Names may repeat, with other images."""
    retained: Sequence[RetentionVerdict]
    ended: Sequence[RetentionVerdict]
    next_change: datetime | None
    """When the next capture becomes too old."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules. `named_by` returns the cache object of a user that names an image, "" without one."""

    settings: CapturedCaches
    named_by: Callable[[CapturedCache], str]

    def plan(
        self, announced: Sequence[Announcement], registered: Iterable[CapturedCache], now: datetime, *, cluster: bool
    ) -> RetentionPlan:
        """Return the plan; `cluster`: whether captures of this namespace are for the pods of all namespaces."""
        known = list(registered)
        offered = [each for each in known if bool(each.key.namespace) is not cluster]
        times = _times(offered)
        reasons = self._reasons(offered, times, now)
        verdicts = [
            self._verdict(each, reasons.get(each.key, RetentionReason.NOT_OFFERED), times.get(each.key, each.time))
            for each in known
        ]
        current = [each for each in offered if reasons[each.key] is RetentionReason.CURRENT]
        names = {each.key.name for each in offered}
        lacking = [each for each in announced if each.name not in names and self._fits(each, current, times, now)]
        oldest = min((times[each.key] for each in current), default=None)
        return RetentionPlan(
            lacking,
            [each for each in verdicts if each.reason not in ENDS],
            [each for each in verdicts if each.reason in ENDS],
            None if oldest is None else oldest + timedelta(seconds=self.settings.max_age),
        )

    def _reasons(
        self, offered: Sequence[CapturedCache], times: "_Times", now: datetime
    ) -> Mapping[object, RetentionReason]:
        found: dict[object, RetentionReason] = {}
        current: list[CapturedCache] = []
        for each in sorted(offered, key=lambda each: (-times[each.key].timestamp(), each.key.name)):
            same = sum(other.hardware_key == each.hardware_key for other in current)
            if self._is_expired(times[each.key], now):
                found[each.key] = RetentionReason.EXPIRED
            elif same >= self.settings.versions or len(current) >= MAX_PER_NAMESPACE:
                found[each.key] = RetentionReason.SUPERSEDED
            else:
                found[each.key] = RetentionReason.CURRENT
                current.append(each)
        return found

    def _fits(self, announced: Announcement, current: Sequence[CapturedCache], times: "_Times", now: datetime) -> bool:
        """Return whether an announced capture would stay if it had an object."""
        order = (-announced.time.timestamp(), announced.name)
        newer = [each for each in current if (-times[each.key].timestamp(), each.key.name) < order]
        same = sum(each.hardware_key == announced.hardware.key for each in newer)
        few = same < self.settings.versions and len(newer) < MAX_PER_NAMESPACE
        return few and not self._is_expired(announced.time, now)

    def _is_expired(self, time: datetime, now: datetime) -> bool:
        return (now - time).total_seconds() > self.settings.max_age

    def _verdict(self, cache: CapturedCache, reason: RetentionReason, time: datetime) -> RetentionVerdict:
        versions, age = self.settings.versions, self.settings.max_age
        why = {
            RetentionReason.CURRENT: f"one of the {versions} newest captures of {cache.hardware_key}",
            RetentionReason.EXPIRED: f"captured more than {age:g} seconds ago, at {timestamp(time)}",
            RetentionReason.SUPERSEDED: f"there are {versions} newer captures of {cache.hardware_key}, or "
            f"{MAX_PER_NAMESPACE} of its namespace",
            RetentionReason.NOT_OFFERED: f"captures of {cache.namespace} are not for the pods that it is for any more",
        }[reason]
        if reason is RetentionReason.CURRENT:
            return RetentionVerdict(cache, reason, why)
        if cache.pods_using:
            return RetentionVerdict(cache, RetentionReason.IN_USE, f"pods mount it; {why}")
        if other := self.named_by(cache):
            return RetentionVerdict(cache, RetentionReason.NAMED_BY_CACHE, f"{other} names its image; {why}")
        return RetentionVerdict(cache, reason, why)


_Times = Mapping[object, datetime]
ENDS: Final = (RetentionReason.EXPIRED, RetentionReason.SUPERSEDED, RetentionReason.NOT_OFFERED)


def _times(registered: Iterable[CapturedCache]) -> _Times:
    """Return when each registered capture was made, as signers stated it. What nodes announce changes no time."""
    return {each.key: each.time for each in registered}
