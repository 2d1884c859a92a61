"""Group switches that connect nearly the same hosts (the rails of a group), or the same lower groups. Pure.

Two switches belong together if more than half of what either connects is connected by both (Jaccard index > 1/2). One
wrong cable cannot raise the index of two separate switches above 1/2, and in groups of three hosts or more one missing
cable cannot lower the index of two rails to it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

MAX_WORK = 1 << 25
"""Limit of work: about a second. A regular network of 100,000 hosts needs a hundredth of it."""
_VISIT, _COMPARISON = 4, 64
"""The work that a pair of switches is counted with, so that at most 500,000 pairs are compared."""


class TooIrregular(ValueError):
    """The switches connect the hosts in so many different ways that comparing them would take minutes."""


def joined(connected: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return groups of switches (rails), sorted; `connected` has the hosts or lower groups of each switch.

    Raises:
        TooIrregular: the comparisons exceed MAX_WORK.
    """
    alike: dict[frozenset[str], list[str]] = defaultdict(list)
    for switch in sorted(connected):
        alike[connected[switch]].append(switch)
    # Switches without known connections share no host.
    alone = [(switch,) for switch in alike.pop(frozenset(), [])]
    forest = _Forest(list(alike))
    groups: dict[int, list[str]] = defaultdict(list)
    for number, switches in enumerate(alike.values()):
        groups[forest.root(number)] += switches
    return sorted([*(tuple(sorted(group)) for group in groups.values()), *alone])


class _Forest:
    """Disjoint sets of the numbers of `sets`. Two sets are compared only if they share something."""

    def __init__(self, sets: Sequence[frozenset[str]]) -> None:
        self._sets = sets
        self._parents = list(range(len(sets)))
        self._compared: set[tuple[int, int]] = set()
        self._work = 0
        sharing: dict[str, list[int]] = defaultdict(list)
        for number, things in enumerate(sets):
            for thing in things:
                sharing[thing].append(number)
        for numbers in sharing.values():
            for first, second in self._apart(numbers):
                self._compare(first, second)

    def root(self, number: int) -> int:
        """Return the number that stands for the set of a number."""
        while (parent := self._parents[number]) != number:
            self._parents[number] = number = self._parents[parent]
        return number

    def _apart(self, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield each pair from different sets."""
        by_root: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            by_root[self.root(number)].append(number)
        for these, those in combinations(by_root.values(), 2):
            yield from product(these, those)

    def _compare(self, first: int, second: int) -> None:
        pair = (first, second) if first < second else (second, first)
        self._work += _VISIT
        if pair not in self._compared and self.root(first) != self.root(second):
            self._compared.add(pair)
            sizes = sorted((len(self._sets[first]), len(self._sets[second])))
            self._work += _COMPARISON + sizes[0]
            common = len(self._sets[first] & self._sets[second]) if 2 * sizes[0] > sizes[1] else 0
            if 2 * common > sum(sizes) - common:
                self._parents[self.root(first)] = self.root(second)
        if self._work > MAX_WORK:
            raise TooIrregular(
                "the leaf switches of the fabric share hosts in no regular order, so no groups of leaves can be found"
            )
