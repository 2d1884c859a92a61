"""Number captures within their family, and remember which contents had a number before. Pure.

A node announces a capture for days after its cache has ended. Without a memory it would come back, as the newest
generation. So each object remembers the contents that had a generation of its family and hardware key before it.
"""

from collections.abc import Iterable
from typing import Final

from gkm.images.captured.content import short

from gkm_operator.captures.objects import Announcement, CapturedCache, Generation

MAX_EARLIER: Final = 128
"""Limit of earlier contents that an object remembers."""
HIGHEST_COUNTED: Final = 1_000_000
"""A user's number above this is ignored, because the field ends at 2^31 - 1."""


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
