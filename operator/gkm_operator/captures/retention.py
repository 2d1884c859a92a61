"""Decide which captures of a namespace get a cache object and a number in their family, keep it, or lose it. Pure.

Only registered captures, which are proven, compete with each other: announcements without proof displace no capture. A
registered capture has its signed time, which no announcement and no pass changes. An announced capture is compared with
it twice: by the announced time, whether a proof is worth its cost, and by the signed time before it is registered. So
an ended capture is not registered again while nodes still announce it.

In a family, the number decides and not the time: a pod that started long ago may end today, and its capture extends the
newest generation. A node announces a capture for days after its cache has ended: so each object remembers the contents
that had a generation of its family and hardware key before it, and these are not registered again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from gkm.api.capture_settings import CapturedCaches
from gkm.api.meta import timestamp
from gkm.images.captured.content import short

from gkm_operator.captures.objects import Announcement, CapturedCache, Generation

MAX_PER_NAMESPACE: Final = 128
"""Limit of captures of one namespace that have cache objects; the newest stay."""
MAX_EARLIER: Final = 128
"""Limit of earlier contents that an object remembers."""
HIGHEST_COUNTED: Final = 1_000_000
"""A user's number above this is ignored, because the field ends at 2^31 - 1."""


class RetentionReason(StrEnum):
    """Reasons of the condition Retained of a captured cache (docs/reference/reasons.md)."""

    CURRENT = "Current"
    PINNED = "Pinned"
    IN_USE = "InUse"
    NAMED_BY_CACHE = "NamedByCache"
    EXPIRED = "Expired"
    SUPERSEDED = "Superseded"
    NOT_OFFERED = "NotOffered"


class RetentionVerdict(NamedTuple):
    """Whether the cache object of a capture stays, and why."""

    cache: CapturedCache
    reason: RetentionReason
    message: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The decision about the captures of one namespace: objects to create, to keep and to delete.

    `next_change` is the time when the decision can change without a new announcement; None if it cannot.
    """

    register: Sequence[Announcement]
    """Captures that should get a cache object, the newest first. Names may repeat with different images."""
    retained: Sequence[RetentionVerdict]
    ended: Sequence[RetentionVerdict]
    next_change: datetime | None
    """When the next capture reaches its maximum age."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules by which captures keep a cache object. `named_by` returns a user's cache with the image, "" if absent.

    `extends_member` returns whether a member that is present has the image that an announced capture extends.
    """

    settings: CapturedCaches
    named_by: Callable[[CapturedCache], str]
    extends_member: Callable[[Announcement], bool]

    def plan(
        self, announced: Sequence[Announcement], registered: Iterable[CapturedCache], now: datetime, *, cluster: bool
    ) -> RetentionPlan:
        """Return the plan for a namespace's captures; `cluster`: they become ClusterGKMCaches."""
        known = list(registered)
        offered = [each for each in known if bool(each.key.namespace) is not cluster]
        reasons = self._reasons(offered, now)
        verdicts = [self._verdict(each, reasons.get(each.key, RetentionReason.NOT_OFFERED)) for each in known]
        current = [each for each in offered if reasons[each.key] is RetentionReason.CURRENT]
        names = {each.key.name for each in offered}
        lacking = [each for each in announced if each.name not in names and self._fits(each, offered, current, now)]
        oldest = min((each.time for each in current), default=None)
        return RetentionPlan(
            lacking,
            [each for each in verdicts if each.reason not in ENDS],
            [each for each in verdicts if each.reason in ENDS],
            None if oldest is None else oldest + timedelta(seconds=self.settings.max_age),
        )

    def _reasons(self, offered: Sequence[CapturedCache], now: datetime) -> Mapping[object, RetentionReason]:
        expired = {each.key: RetentionReason.EXPIRED for each in offered if self._is_expired(each.time, now)}
        ends = expired.keys() | with_taken_numbers(offered)
        groups: dict[tuple[str, str], list[CapturedCache]] = {}
        for each in sorted(offered, key=lambda each: (-each.generation if each.family else 0, *_newest_first(each))):
            if each.key not in ends:
                groups.setdefault(each.group, []).append(each)
        current: list[tuple[bool, tuple[float, str], object]] = []
        for group in groups.values():
            verified = next((each for each in group if each.family and each.verified and not each.held_back), None)
            current += [
                (each is not verified, _newest_first(each), each.key)
                for number, each in enumerate(group)
                if number < self.settings.versions or (each is verified and self.settings.versions)
            ]
        current.sort(key=lambda each: each[:2])
        stays = {key: RetentionReason.CURRENT for _, _, key in current[:MAX_PER_NAMESPACE]}
        return {each.key: RetentionReason.SUPERSEDED for each in offered} | expired | stays

    def _fits(
        self, announced: Announcement, offered: Sequence[CapturedCache], current: Sequence[CapturedCache], now: datetime
    ) -> bool:
        """Return whether an announced capture would stay if it had an object, and would serve pods."""
        order = (-announced.time.timestamp(), announced.name)
        newer = [each for each in current if _newest_first(each) < order]
        # The next generation is newer than all others of its family.
        same = [] if announced.family else group_of(announced, newer)
        few = len(same) < self.settings.versions and len(newer) < MAX_PER_NAMESPACE
        is_next = not announced.family or self._is_next(announced, offered)
        return few and is_next and not self._is_expired(announced.time, now)

    def _is_next(self, announced: Announcement, offered: Sequence[CapturedCache]) -> bool:
        """Return whether a capture may be the next generation of its family.

        A capture that extends no member lacks the content of the generations, and may bring back deleted content: it is
        used where no generation is.
        """
        if self.extends_member(announced):
            return not had_generation(announced, offered)
        return all(each.refused for each in group_of(announced, offered))

    def _is_expired(self, time: datetime, now: datetime) -> bool:
        return (now - time).total_seconds() > self.settings.max_age

    def _verdict(self, cache: CapturedCache, reason: RetentionReason) -> RetentionVerdict:
        versions, age = self.settings.versions, self.settings.max_age
        why = {
            RetentionReason.CURRENT: f"one of the {versions} newest captures of {cache.hardware_key}",
            RetentionReason.EXPIRED: f"captured more than {age:g} seconds ago, at {timestamp(cache.time)}",
            RetentionReason.SUPERSEDED: f"there are {versions} newer captures of {cache.hardware_key}, or "
            f"{MAX_PER_NAMESPACE} of its namespace, or another one has its generation",
            RetentionReason.NOT_OFFERED: f"captures of {cache.namespace} are not for the pods that it is for any more",
        }[reason]
        if reason is RetentionReason.CURRENT:
            return RetentionVerdict(cache, reason, why)
        if cache.pinned:
            return RetentionVerdict(cache, RetentionReason.PINNED, f"spec.pinned is true; {why}")
        if cache.pods_using:
            return RetentionVerdict(cache, RetentionReason.IN_USE, f"pods mount it; {why}")
        if other := self.named_by(cache):
            return RetentionVerdict(cache, RetentionReason.NAMED_BY_CACHE, f"{other} names its image; {why}")
        return RetentionVerdict(cache, reason, why)


ENDS: Final = (RetentionReason.EXPIRED, RetentionReason.SUPERSEDED, RetentionReason.NOT_OFFERED)


def _newest_first(cache: CapturedCache) -> tuple[float, str]:
    return -cache.time.timestamp(), cache.key.name


def next_generation(announced: Announcement, registered: Iterable[CapturedCache], others: Iterable[int]) -> Generation:
    """Return the generation of a new capture in its family: its number is above all captures' and users' numbers.

    The number counts in the whole family: a node that fits captures of two hardware keys, as after an update of a
    driver or a runtime, takes the larger number.
    """
    family = [each for each in registered if each.family == announced.family]
    group = sorted(group_of(announced, family), key=lambda each: (-each.generation, each.key.name))
    counted = [*(number for number in others if number <= HIGHEST_COUNTED), *(each.generation for each in family)]
    earlier = dict.fromkeys(digest for each in group for digest in (short(each.content_digest), *each.earlier))
    return Generation(1 + max(counted, default=0), tuple(earlier)[:MAX_EARLIER])


def had_generation(announced: Announcement, registered: Iterable[CapturedCache]) -> bool:
    """Return whether a later generation of the family remembers this content, so that it must not come back."""
    digest = short(announced.content_digest)
    return any(digest in each.earlier for each in group_of(announced, registered))


def group_of(announced: Announcement, registered: Iterable[CapturedCache]) -> list[CapturedCache]:
    """Return the registered captures with the same family and hardware key as an announced capture."""
    return [each for each in registered if each.group == announced.group]


def with_taken_numbers(registered: Iterable[CapturedCache]) -> set[object]:
    """Return the keys of captured caches whose number an older object of the family already has.

    Two leaders made them: the request of the former one arrived after the later one had read the numbers.
    """
    taken: set[object] = set()
    found: set[object] = set()
    for each in sorted(registered, key=lambda each: (each.created, each.key.name)):
        if each.family:
            number = each.family, each.generation
            if number in taken:
                found.add(each.key)
            taken.add(number)
    return found
