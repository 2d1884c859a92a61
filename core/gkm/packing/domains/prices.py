"""A Lagrangian bound on what a plan costs, and what plans close to it can take (docs/design/calculus.md, Method).

Let a group be worth a price on each axis. Then every area (a kind of domain, or a block) has steps that are best for
it, and all areas together cost at least what these do: a bound, whatever the prices, and a tight one at the right ones.
By how much a step exceeds its area's best is slack, and the slack of a whole plan is its cost less the bound. So a step
that exceeds it is in no plan of that cost (reduced-cost fixing), and one that is much better than leaving the area
aside is in all of them, with all of its groups but those that the slack pays for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gkm.packing.inventory import Integers

MOST = float(1 << 61)
"""Sums of costs and worths stay below: they are int64."""
DENOMINATOR = 1 << 20
"""Prices and what is compared with them are in parts of one cost: the bound lacks a part of each group at most."""
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

    def reduced(self, prices: Integers) -> Integers:
        """Return what each step costs beyond what its groups are worth."""
        found: Integers = self.cost * DENOMINATOR - self.groups @ prices
        return found

    def least(self, prices: Integers) -> Integers:
        """Return the least of each area that has steps."""
        found: Integers = np.minimum.reduceat(self.reduced(prices), self.starts)
        return found


class PricingInstance(NamedTuple):
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
    """Prices by axis, and the bound at these, in parts of one cost (DENOMINATOR).

    `least` is that of each area, `last` what the short group costs at least.
    """

    instance: PricingInstance
    axis: Integers
    least: Integers
    last: int
    bound: int

    @property
    def fewest(self) -> int:
        """Return what any plan costs at least."""
        return -(-self.bound // DENOMINATOR)

    def allowed(self, cost: int) -> tuple[Allowed, Allowed | None]:
        """Return the steps that plans of no more than a cost can have, without the short group and with it."""
        slack, short = cost * DENOMINATOR - self.bound, self.instance.short
        whole = self._within(self.instance.whole, slack)
        return whole, None if short is None else self._within(short, slack + self.last)

    def _within(self, steps: Steps, slack: int) -> Allowed:
        left = slack - (steps.reduced(self.axis) - self.least[steps.of])
        found = np.flatnonzero(left >= 0)
        return Allowed(found, left[found])


def prices(instance: PricingInstance) -> Prices | None:
    """Return prices at which the bound is high; None where 64 bits do not hold the sums."""
    # No group is worth more than the dearest step.
    highest = int(instance.whole.cost.max(initial=0)) * DENOMINATOR
    if _extent(instance, highest) >= MOST:
        return None
    axes, limits = range(len(instance.limits)), instance.limits
    alone = [_of_axis(instance.whole, axis) for axis in axes]

    def value(axis: int, groups: int, price: int) -> int:
        """Return the least that so many groups of an axis cost, by this price."""
        return price * groups + int(alone[axis].least(np.array([price])) @ instance.copies)

    def total(price: int) -> int:
        each = (value(axis, limits[axis] or 0, min(price, own[axis])) for axis in axes)
        return price * (instance.groups - sum(limit or 0 for limit in limits)) + sum(each)

    own = [
        highest if limit is None else _best(highest, partial(value, axis, limit)) for axis, limit in enumerate(limits)
    ]
    top = _best(highest, total)
    at = np.array([min(top, best) for best in own], dtype=np.int64)
    least = instance.whole.least(at)
    last = 0
    if instance.short is not None:
        last = int((instance.short.least(at) - least[instance.short.areas]).min(initial=_NEVER))
    bound = top * instance.groups + int(least @ instance.copies) + last
    bound -= sum((top - int(one)) * limit for one, limit in zip(at, limits, strict=True) if limit is not None)
    return Prices(instance, at, least, last, bound)


def _extent(instance: PricingInstance, highest: int) -> float:
    """Return what no sum of costs and worths exceeds, at any price that is tried."""
    copies = instance.copies[instance.whole.of].astype(float)
    cost, groups = instance.whole.cost, instance.whole.groups.sum(axis=1)
    return 2 * (float(cost @ copies) * DENOMINATOR + highest * float(groups @ copies + instance.groups))


def _of_axis(whole: Steps, axis: int) -> Steps:
    """Return the steps of one axis. An area of several axes is looked at for each alone: its prices are as true."""
    here = np.flatnonzero((whole.groups[:, axis] > 0) | (whole.cost == 0))
    return Steps.of_rows(whole.groups[here, axis : axis + 1], whole.cost[here], whole.of[here])


def _best(highest: int, value: Callable[[int], int]) -> int:
    """Return the price of the highest bound, which rises up to it and falls from there on."""
    low, high = 0, highest
    while low < high:
        middle = (low + high) // 2
        if value(middle) < value(middle + 1):
            low = middle + 1
        else:
            high = middle
    return low
