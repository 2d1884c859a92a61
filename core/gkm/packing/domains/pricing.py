"""How many groups each domain can have where spares must leave, by what one more group is worth (calculus.md, Proof).

A group may cost a price in spares that leave. At a given price every domain has numbers of groups that are best for it,
and all of them together cost at least what these do: a bound, whatever the price, and a tight one at the right price.
What is further from its domain's best than that bound is from the fewest that leave is in no plan with so few.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.options import Shape, steps
from gkm.packing.inventory import Integers

MAX_SLOPES = 64
"""Steps from the first that are looked at for prices: another price is as true a bound, and hardly a looser one."""


class Step(NamedTuple):
    """`fewest` to `most` groups, the short one among them or not, so many of which have spares that leave."""

    fewest: int
    most: int
    leaving: int
    short: bool


class Choice(NamedTuple):
    """What a domain can take: so many groups, the short one among them or not. `slack` is what that lacks of the best.

    It is in parts of the price's denominator.
    """

    slack: int
    groups: int
    short: bool


class _Table(NamedTuple):
    """Steps of all kinds of domains, one kind after another: those of a kind begin at `starts`, `of` is their kind."""

    most: Integers
    leaving: Integers
    starts: Integers
    of: Integers

    def at(self, price: Fraction) -> Integers:
        """Return what each step costs beyond what it is worth, in parts of the price's denominator."""
        found: Integers = price.denominator * self.leaving - price.numerator * self.most
        return found

    def least(self, price: Fraction) -> Integers:
        """Return the least of each kind."""
        found: Integers = np.minimum.reduceat(self.at(price), self.starts)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The price at which the bound is highest. `fewest` is the bound: so many groups at least have spares that leave.

    `slots` are those of each kind of domain: domains that have equally many are of one kind.
    """

    slots: Sequence[int]
    whole: _Table
    short: _Table | None
    price: Fraction
    bound: Fraction

    @property
    def fewest(self) -> int:
        """Return the bound as a whole number."""
        return -(-self.bound.numerator // self.bound.denominator)

    def slack(self, leaving: int) -> int:
        """Return by how much a plan with so many may exceed the bound, in parts of the price's denominator."""
        return int((leaving - self.bound) * self.price.denominator)

    def choices(self, leaving: int) -> dict[int, list[Choice]]:
        """Return the most that a kind of domain takes in each step that is within the slack; fewer would lack more."""
        least = self.whole.least(self.price)
        tables = [(self.whole, least, False)]
        if self.short is not None:
            more = int((self.short.least(self.price) - least)[_some(self.short)].min())
            tables.append((self.short, least + more, True))
        found: dict[int, list[Choice]] = {slots: [] for slots in self.slots}
        for table, lowest, short in tables:
            slack = table.at(self.price) - lowest[table.of]
            within = (slack <= self.slack(leaving)) & (table.leaving < NEVER)
            for index in np.flatnonzero(within).tolist():
                choice = Choice(int(slack[index]), int(table.most[index]), short)
                found[self.slots[table.of[index]]].append(choice)
        return found

    def allowed(self, leaving: int) -> dict[int, list[Step]]:
        """Return what a kind of domain can take in a plan of no more than so many groups whose spares leave.

        A step of no groups is among them where a domain can be left aside.
        """
        slack = self.slack(leaving)
        least = self.whole.least(self.price)
        found: dict[int, list[Step]] = {slots: [] for slots in self.slots}
        self._within(self.whole, least + slack, found, short=False)
        if self.short is not None:
            more = int((self.short.least(self.price) - least)[_some(self.short)].min())
            self._within(self.short, least + more + slack, found, short=True)
        return found

    def _within(self, table: _Table, highest: Integers, found: dict[int, list[Step]], *, short: bool) -> None:
        price, leaving = self.price, table.leaving
        # Of a step the fewest groups that are worth enough; a step begins where the one before it ends.
        fewest = -((highest[table.of] - price.denominator * leaving) // price.numerator)
        follow = np.concatenate(([0], table.most[:-1] + 1))
        follow[table.starts] = int(short)
        fewest = np.maximum(fewest, follow)
        for index in np.flatnonzero((fewest <= table.most) & (leaving < NEVER)).tolist():
            step = Step(int(fewest[index]), int(table.most[index]), int(leaving[index]), short)
            found[self.slots[table.of[index]]].append(step)


NEVER = 1 << 31
"""As many leave where a domain has no room for the short group: more than there are groups."""


def prices(slots: Sequence[int], shape: Shape, groups: int) -> Prices:
    """Return the highest bound for a run of so many groups in domains of so many slots each, of which one fits some."""
    counts = Counter(slots)
    kinds = sorted(counts)
    whole = [[(0, 0), *steps(kind, shape, short=False, leave=True, most=groups)] for kind in kinds]
    short = None
    if shape.missing:
        short = _table([steps(kind, shape, short=True, leave=True, most=groups) or [(0, NEVER)] for kind in kinds])
    tables = _table(whole), short
    candidates = _candidates(whole, shape)
    low, high = 0, len(candidates) - 1
    # The bound is concave in the price: it rises up to the best one, and falls from there on.
    while low < high:
        middle = (low + high) // 2
        if _bound(*tables, counts, candidates[middle], groups) < _bound(
            *tables, counts, candidates[middle + 1], groups
        ):
            low = middle + 1
        else:
            high = middle
    price = candidates[low]
    return Prices(kinds, *tables, price, _bound(*tables, counts, price, groups))


def _candidates(steps_of: Sequence[Sequence[tuple[int, int]]], shape: Shape) -> list[Fraction]:
    """Return prices at which a domain would as well have more groups as fewer."""
    slopes = {(shape.pods + shape.spares, shape.spares)}
    for found in steps_of:
        for number, (groups, leaving) in enumerate(found[:-1]):
            more, away = found[number + 1]
            slopes.add((away - leaving, more - groups))
        first = found[1] if len(found) > 1 and not found[1][1] else found[0]
        slopes |= {(away, groups - first[0]) for groups, away in found[1 : MAX_SLOPES + 1] if groups > first[0]}
    return sorted({Fraction(away, groups) for away, groups in slopes if away})


def _table(found: Sequence[Sequence[tuple[int, int]]]) -> _Table:
    lengths = [len(some) for some in found]
    flat = np.array([step for some in found for step in some], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return _Table(flat[:, 0], flat[:, 1], starts, np.repeat(np.arange(len(found)), lengths))


def _some(table: _Table) -> Integers:
    """Return the kinds that have room for the short group."""
    found: Integers = np.flatnonzero(table.leaving[table.starts] < NEVER)
    return found


def _bound(whole: _Table, short: _Table | None, counts: Mapping[int, int], price: Fraction, groups: int) -> Fraction:
    least = whole.least(price)
    total = price.numerator * groups
    total += sum(int(value) * counts[slots] for value, slots in zip(least, sorted(counts), strict=True))
    if short is not None:
        total += int((short.least(price) - least)[_some(short)].min())
    return Fraction(total, price.denominator)
