"""A compact form for many names of nodes, `gpu-[001-018,020],head*8`, similar to Slurm's hostlists.

The form preserves the order and the repetitions of names: `unfold` returns exactly the names that `fold` received.
Names of nodes contain no commas, brackets or stars (RFC 1123), so the form is unambiguous. 10,000 numbered nodes need a
few hundred bytes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

MAX_NAMES = 1_000_000
_NUMBER = re.compile(r"([0-9]+)")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
# The number of a machine in its rack is the last number of the first label: ip-10-0-1-17.example.internal.
_NUMBERED = re.compile(r"(?P<before>[^.]*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9.]*(?:\..*)?)")
_PART = re.compile(
    r"(?:(?P<name>[a-z0-9.-]+)|(?P<before>[a-z0-9.-]*)\[(?P<ranges>[0-9,-]+)\](?P<after>[a-z0-9.-]*))"
    r"(?:\*(?P<times>[1-9][0-9]{0,6}))?(?=,|\Z)"
)
_RANGE = re.compile(r"(?P<first>[0-9]{1,18})(?:-(?P<last>[0-9]{1,18}))?")


class NamesUnreadable(ValueError):
    """The text is not a list of node names; the message states the position."""


class _Numbered(NamedTuple):
    """The parts of a name; a name without a number is all in `before`."""

    before: str
    number: str
    after: str
    times: int

    @property
    def family(self) -> tuple[str, str, int, bool]:
        return self.before, self.after, self.times, bool(self.number)


def fold(names: Sequence[str]) -> str:
    """Return names of nodes as one compact text in the same order.

    Raises:
        ValueError: a name is not a valid name of a node.
    """
    parts = (_split_number(name, sum(1 for _ in same)) for name, same in groupby(names))
    return ",".join(_format_family(list(family)) for _, family in groupby(parts, lambda part: part.family))


def fold_sorted(names: Iterable[str]) -> str:
    """Return names of nodes as one compact text, sorted and each once; gpu-2 precedes gpu-10: ranges are formed."""
    return fold(sorted(set(names), key=_by_numbers))


def unfold(text: str, limit: int = MAX_NAMES) -> tuple[str, ...]:
    """Return the names of nodes in a compact text, in their order.

    Raises:
        NamesUnreadable: the text is not in the form of `fold`, or has more than `limit` names (or than MAX_NAMES).
    """
    limit = min(limit, MAX_NAMES)
    found: list[str] = []
    at = 0
    while at <= len(text):
        part = _PART.match(text, at)
        if part is None:
            raise NamesUnreadable(f"no names of nodes at {text[at : at + 32]!a}")
        times = int(part["times"] or 1)
        # Check before expanding: ten bytes can stand for a million names.
        remaining = (limit - len(found)) // times
        if not remaining:
            raise NamesUnreadable(f"more than {limit} names of nodes")
        numbers = [""] if part["name"] else _numbers(part["ranges"], remaining)
        before, after = part["name"] or part["before"], part["after"] or ""
        found += [name for number in numbers for name in [f"{before}{number}{after}"] * times]
        at = part.end() + 1
    return tuple(found)


def _by_numbers(name: str) -> tuple[list[str | int], str]:
    parts: list[str | int] = list(_NUMBER.split(name))
    parts[1::2] = [int(number) for number in parts[1::2]]
    # gpu-7 and gpu-07 are different names.
    return parts, name


def _split_number(name: str, times: int) -> _Numbered:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:63]!a} is no name of a node")
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None:
        return _Numbered(name, "", "", times)
    return _Numbered(numbered["before"], numbered["number"], numbered["after"], times)


def _format_family(family: Sequence[_Numbered]) -> str:
    """Return the text for names that differ at most in their numbers; without numbers they are one name."""
    first = family[0]
    ranges = list(_ranges([part.number for part in family]))
    numbers = f"[{','.join(ranges)}]" if len(family) > 1 else first.number
    return f"{first.before}{numbers}{first.after}{f'*{first.times}' if first.times > 1 else ''}"


def _ranges(numbers: Sequence[str]) -> Iterator[str]:
    first = last = numbers[0]
    for number in numbers[1:]:
        # The first number of a range sets the padding: 9-11 is 9, 10, 11, and 09-11 is 09, 10, 11.
        if number == _padded(int(last) + 1, first):
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number
    yield first if first == last else f"{first}-{last}"


def _padded(number: int, like: str) -> str:
    return str(number).zfill(len(like))


def _numbers(ranges: str, limit: int) -> Iterator[str]:
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        if found is None:
            raise NamesUnreadable(f"no range of numbers: {text[:40]!a}")
        first, last = found["first"], found["last"] or found["first"]
        count = int(last) - int(first) + 1
        if not 1 <= count <= limit:
            raise NamesUnreadable(f"the range {text} has {count} names: 1 to {limit} are possible here")
        limit -= count
        for number in range(int(first), int(last) + 1):
            yield _padded(number, first)
