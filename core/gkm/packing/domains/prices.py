"""A Lagrangian bound on what a plan costs, and what plans close to it can take (docs/design/calculus.md, Method).

Let a group be worth a price on each axis. Then every area (a kind of domain, or a block) has steps that are best for
it, and all areas together cost at least what these do: a bound, whatever the prices, and a tight one at the right ones.
By how much a step exceeds its area's best is slack, and the slack of a whole plan is its cost less the bound. So a step
that exceeds it is in no plan of that cost (reduced-cost fixing), and one that is much better than leaving the area
aside is in all of them, with all of its groups but those that the slack pays for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import NamedTuple

import numpy as np

from gkm.packing.inventory import Integers

MOST = float(1 << 61)
"""Sums of costs and worths stay below: they are int64."""
MAX_DENOMINATOR = 1 << 20
MAX_SLOPES = 64
"""Steps from the first of an area that are looked at for prices: others give bounds that are as true."""
_NEVER = 1 << 61


class Steps(NamedTuple):
    """What areas can take: groups (a column for each axis) at a cost, in order of areas, the fewest groups first.

    `of` has the area of each step, `areas` those that have steps, `starts` their first steps.
    """

    groups: Integers
    cost: Integers
    of: Integers
    areas: Integers
    starts: Integers

    @classmethod
    def of_rows(cls, groups: Integers, cost: Integers, of: Integers) -> "Steps":
        """Return the steps of rows that are in order."""
        areas, starts = np.unique(of, return_index=True)
        return cls(groups, cost, of, areas, starts)

    def reduced(self, prices: Integers, denominator: int) -> Integers:
        """Return what each step costs beyond what its groups are worth, in parts of the denominator."""
        found: Integers = self.cost * denominator - self.groups @ prices
        return found

    def least(self, prices: Integers, denominator: int) -> Integers:
        """Return the least of each area that has steps."""
        found: Integers = np.minimum.reduceat(self.reduced(prices, denominator), self.starts)
        return found


class Instance(NamedTuple):
    """What is to be placed: so many whole groups, and at most `limits` of each axis (None where no ceiling binds).

    There are `copies` of each area; each has a step of no groups first. `short` are the steps with the short last
    group, whole groups beside it; None where the last group is whole.
    """

    whole: Steps
    short: Steps | None
    copies: Integers
    groups: int
    limits: Sequence[int | None]


class Allowed(NamedTuple):
    """Steps within the slack, by number, and the slack that each leaves."""

    steps: Integers
    left: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices by axis, in parts of a denominator, and the bound at these, in the same parts.

    `least` is that of each area, `last` what the short group costs at least.
    """

    instance: Instance
    axis: Integers
    denominator: int
    least: Integers
    last: int
    bound: int

    @property
    def fewest(self) -> int:
        """Return what any plan costs at least."""
        return -(-self.bound // self.denominator)

    def allowed(self, cost: int) -> tuple[Allowed, Allowed | None]:
        """Return the steps that plans of no more than a cost can have, without the short group and with it."""
        slack, short = cost * self.denominator - self.bound, self.instance.short
        whole = self._within(self.instance.whole, slack)
        return whole, None if short is None else self._within(short, slack + self.last)

    def _within(self, steps: Steps, slack: int) -> Allowed:
        left = slack - (steps.reduced(self.axis, self.denominator) - self.least[steps.of])
        found = np.flatnonzero(left >= 0)
        return Allowed(found, left[found])


def prices(instance: Instance) -> Prices | None:
    """Return prices at which the bound is high; None where 64 bits do not hold the sums."""
    if _extent(instance) >= MOST:
        return None
    parts = [_axis(instance, axis) for axis in range(instance.whole.groups.shape[1])]
    own = [
        None if limit is None else _best(part.candidates, partial(part.value, groups=limit))
        for part, limit in zip(parts, instance.limits, strict=True)
    ]
    limited = sum(limit for limit in instance.limits if limit is not None)

    def value(price: Fraction) -> Fraction:
        total = price * (instance.groups - limited)
        for part, limit, best in zip(parts, instance.limits, own, strict=True):
            total += part.value(price if best is None else min(price, best), limit or 0)
        return total

    candidates = parts[0].candidates if len(parts) == 1 else sorted({one for part in parts for one in part.candidates})
    top = _best(candidates, value)
    found = [top if best is None else min(top, best) for best in own]
    denominator = min(lcm(*(price.denominator for price in (top, *found))), MAX_DENOMINATOR)
    at, best = np.array([int(price * denominator) for price in found], dtype=np.int64), int(top * denominator)
    least = instance.whole.least(at, denominator)
    last = 0
    if instance.short is not None:
        last = int((instance.short.least(at, denominator) - least[instance.short.areas]).min(initial=_NEVER))
    bound = best * instance.groups + int(least @ instance.copies) + last
    bound -= sum((best - int(one)) * limit for one, limit in zip(at, instance.limits, strict=True) if limit is not None)
    return Prices(instance, at, denominator, least, last, bound)


def _extent(instance: Instance) -> float:
    """Return what no sum of costs and worths exceeds, at any price that is tried."""
    copies = instance.copies[instance.whole.of].astype(float)
    cost, groups = instance.whole.cost, instance.whole.groups.sum(axis=1)
    return 2 * float(cost @ copies + cost.max(initial=1)) * float(groups @ copies + instance.groups + MAX_DENOMINATOR)


class _Axis(NamedTuple):
    """The steps of one axis alone, and the prices at which an area would as well have more of its groups as fewer."""

    steps: Steps
    copies: Integers
    candidates: Sequence[Fraction]

    def value(self, price: Fraction, groups: int) -> Fraction:
        """Return the least that so many groups of this axis cost, by this price."""
        least = self.steps.least(np.array([price.numerator]), price.denominator)
        return Fraction(price.numerator * groups + int(least @ self.copies), price.denominator)


def _axis(instance: Instance, axis: int) -> _Axis:
    whole = instance.whole
    # An area of several axes is looked at for each of them alone: its prices are as true.
    here = np.flatnonzero((whole.groups[:, axis] > 0) | (whole.cost == 0))
    steps = Steps.of_rows(whole.groups[here, axis : axis + 1], whole.cost[here], whole.of[here])
    return _Axis(steps, instance.copies, list(_slopes(steps)))


def _slopes(steps: Steps) -> Iterator[Fraction]:
    groups, cost = steps.groups[:, 0], steps.cost
    number = np.arange(len(cost))
    pairs = []
    for base in (np.maximum(number - 1, 0), steps.starts[steps.of], _last_free(steps)):
        more, dearer = groups - groups[base], cost - cost[base]
        some = (base < number) & (more > 0) & (dearer > 0) & (number - steps.starts[steps.of] <= MAX_SLOPES)
        some &= steps.of[base] == steps.of
        pairs.append(np.stack([dearer[some], more[some]], axis=1))
    slopes = np.concatenate(pairs)
    divided = np.gcd(slopes[:, 0], slopes[:, 1])[:, None]
    found = np.unique(slopes // np.maximum(divided, 1), axis=0)
    for dearer, more in found[np.argsort(found[:, 0] / found[:, 1], kind="stable")].tolist():
        yield Fraction(dearer, more)


def _last_free(steps: Steps) -> Integers:
    """Return for each step the last of its area that costs nothing."""
    free = np.where(steps.cost == 0, np.arange(len(steps.cost)), 0)
    found: Integers = np.maximum.reduceat(free, steps.starts)[steps.of]
    return found


def _best(candidates: Sequence[Fraction], value: Callable[[Fraction], Fraction]) -> Fraction:
    """Return the price of the highest bound, which rises up to it and falls from there on."""
    low, high = 0, len(candidates) - 1
    if high < 0:
        return Fraction(0)
    while low < high:
        middle = (low + high) // 2
        if value(candidates[middle]) < value(candidates[middle + 1]):
            low = middle + 1
        else:
            high = middle
    return candidates[low]
