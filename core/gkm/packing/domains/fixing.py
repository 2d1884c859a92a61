"""Reduced-cost fixing: which steps of which domains plans of a cost can have, by prices (calculus.md, Method).

Let a group be worth a price on each axis. Then every area (a kind of domain, or a block) has steps that are best for
it, and all areas together cost at least as much as these: a Lagrangian bound at any prices, and a tight bound at the
right prices. By how much a step exceeds its area's best is slack, and the slack of a whole plan is its cost less the
bound. So no plan of that cost has a step that exceeds it. Every such plan has a step that is much better than leaving
the area aside, with all its groups except the groups that the slack pays for.

The bound is on the cost that is compared first: groups with spares elsewhere where some must be; else domains,
blocks or free GPUs, as the policy says. For blocks, a step is the whole block; otherwise domains that are alike are one
area.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Offer, Step, steps
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy

MOST = float(1 << 61)
"""Limit of sums of costs and values, so that they fit into int64."""
DENOMINATOR = 1 << 20
"""Prices are whole multiples of 1/DENOMINATOR of a cost."""
_NEVER = 1 << 61


class Steps(NamedTuple):
    """Steps (amounts of groups) of areas, each with its groups on each axis and its cost; sorted by area and groups.

    `of` has the area of each step, `areas` those that have steps, `starts` their first steps.
    """

    groups: Integers
    cost: Integers
    of: Integers
    areas: Integers
    starts: Integers

    @classmethod
    def of_rows(cls, groups: Integers, cost: Integers, of: Integers) -> "Steps":
        """Return the steps from rows that are sorted by area and groups."""
        areas, starts = np.unique(of, return_index=True)
        return cls(groups, cost, of, areas, starts)

    def reduced(self, prices: Integers) -> Integers:
        """Return the reduced cost of each step: its cost minus the value of its groups at these prices."""
        found: Integers = self.cost * DENOMINATOR - self.groups @ prices
        return found

    def least(self, prices: Integers) -> Integers:
        """Return the smallest reduced cost of each area that has steps."""
        found: Integers = np.minimum.reduceat(self.reduced(prices), self.starts)
        return found


class PricingInstance(NamedTuple):
    """The relaxed problem: whole groups to place, limits for each axis (None: no limit), and the steps of areas.

    There are `copies` of each area; each has a step of no groups first. `short` are the steps with the short last
    group, whole groups beside it; None if the last group is whole.
    """

    whole: Steps
    short: Steps | None
    copies: Integers
    groups: int
    limits: Sequence[int | None]


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices for each axis, and the lower bound of the cost that they prove, in units of 1/DENOMINATOR.

    `least` is the least cost of each area, `last` the least cost of the short group.
    """

    instance: PricingInstance
    axis: Integers
    least: Integers
    last: int
    bound: int

    @property
    def fewest(self) -> int:
        """Return a lower bound of the cost of every plan."""
        return -(-self.bound // DENOMINATOR)

    def allowed(self, cost: int) -> Iterator[tuple[Steps, Integers, Integers]]:
        """Yield the steps that a plan of at most this cost can contain, without and then with the short last group.

        Of each table the numbers of such steps, and the slack that each leaves.
        """
        slack, short = cost * DENOMINATOR - self.bound, self.instance.short
        for table, most in ((self.instance.whole, slack), (short, slack + self.last)):
            if table is not None:
                left = most - (table.reduced(self.axis) - self.least[table.of])
                within = np.flatnonzero(left >= 0)
                yield table, within, left[within]


def prices(instance: PricingInstance) -> Prices | None:
    """Return prices that prove a high lower bound; None if the sums do not fit into 64 bits."""
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
    return bisect_left(range(highest), 1, key=lambda price: value(price) >= value(price + 1))


_NOWHERE = 2
"""More whole groups than the short one takes the place of."""


class Fixed(NamedTuple):
    """The remaining steps of each domain, and the whole groups that it takes in every plan of the cost."""

    steps: Sequence[Sequence[Step]]
    least: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Fixing:
    """The domains, their kinds and steps, and the prices by which steps are excluded.

    `area` is the number of each domain's area of the prices. `rows` are the steps of the prices in their order, without
    the short group and with it; None if areas are blocks.
    """

    offer: Offer
    domains: Integers
    axis: Integers
    kind: Integers
    steps: Sequence[Sequence[Step]]
    area: Integers
    priced: Prices | None
    rows: tuple[Sequence[Step], Sequence[Step]] | None

    def all(self) -> Fixed:
        """Return all steps of all domains, without any excluded by prices."""
        return Fixed([self.steps[kind] for kind in self.kind.tolist()], np.zeros(len(self.domains), dtype=np.int64))

    def within(self, priced: Prices, cost: int) -> Fixed:
        """Return the steps that plans of at most `cost` can contain, as the prices show."""
        if self.rows is None:
            return self._by_block(priced, cost)
        return self._by_kind(priced, cost, self.rows)

    def _by_kind(self, priced: Prices, cost: int, listed: Sequence[Sequence[Step]]) -> Fixed:
        areas = len(priced.instance.copies)
        found: list[list[Step]] = [[] for _ in range(areas)]
        least = np.full(areas, np.iinfo(np.int64).max)
        for rows, (table, numbers, left) in zip(listed, priced.allowed(cost), strict=False):
            of, groups = table.of[numbers], table.groups[numbers]
            price = priced.axis[groups.argmax(axis=1)]
            # A group less than a step has costs its price; without a price it may have any fewer.
            fewest = np.where(price > 0, groups.sum(axis=1) - left // np.maximum(price, 1), 0)
            np.minimum.at(least, of, np.maximum(fewest, 0))
            for area, number in zip(of.tolist(), numbers.tolist(), strict=True):
                if rows[number].groups or rows[number].short:
                    found[area].append(rows[number])
        return Fixed([found[area] for area in self.area.tolist()], least[self.area])

    def _by_block(self, priced: Prices, cost: int) -> Fixed:
        areas = len(priced.instance.copies)
        used, aside = np.zeros(areas, dtype=np.bool_), np.zeros(areas, dtype=np.bool_)
        left = np.zeros(areas, dtype=np.int64)
        for table, numbers, slack in priced.allowed(cost):
            some, of = table.cost[numbers] > 0, table.of[numbers]
            aside[of[~some]] = True
            used[of[some]] = True
            np.maximum.at(left, of[some], slack[some])
        price = priced.axis[self.axis]
        # The short group takes the place of a whole one in any one domain.
        least = self.offer.capacities[self.domains] - left[self.area] // np.maximum(price, 1) - self.offer.short
        least = np.where(aside[self.area] | (price == 0), 0, np.maximum(least, 0))
        here = zip(self.kind.tolist(), used[self.area].tolist(), strict=True)
        return Fixed([self.steps[kind] if some else () for kind, some in here], least)


def fixing(offer: Offer, domains: Integers, axis: Integers, limits: Sequence[int | None]) -> Fixing:
    """Return the steps that domains can take, with prices if these can be computed.

    `limits` has one limit for each axis.
    """
    # 1. Domains of equal slots and axis are of one kind, with the same steps.
    # 2. Areas of the prices are blocks where these are compared first, else domains of one kind and one cost.
    # 3. Each area has a table of steps without the short group and one with it, and what each step costs.
    kind, steps_of, axis_of = _kinds(offer, domains, axis)
    policy = offer.request.policy
    if policy is Policy.FEWEST_BLOCKS and not offer.overflow:
        area = np.unique(offer.capacity.inventory.blocks[domains], return_inverse=True)[1]
        priced = prices(_of_blocks(offer, domains, axis, area, limits))
        return Fixing(offer, domains, axis, kind, steps_of, area, priced, None)
    waste = policy is Policy.LEAST_WASTE and not offer.overflow
    free = offer.capacity.free[domains] if waste else np.ones_like(domains)
    _, first, area, count = np.unique(
        kind * (int(free.max(initial=0)) + 1) + free, return_index=True, return_inverse=True, return_counts=True
    )
    kinds, cost = kind[first].tolist(), free[first].tolist()
    tables, rows = [], []
    for short in (False, True):
        some = [[step for step in steps_of[each] if step.short == short] for each in kinds]
        if not short:
            some = [[Step(0, 0, short=False), *offered] for offered in some]
        of = [number for number, offered in enumerate(some) for _ in offered]
        listed = [step for offered in some for step in offered]
        groups = np.zeros((len(of), len(limits)), dtype=np.int64)
        groups[np.arange(len(of)), [axis_of[kinds[area]] for area in of]] = [step.groups for step in listed]
        costs = [
            step.overflow if offer.overflow else cost[area] if step.groups or short else 0
            for area, step in zip(of, listed, strict=True)
        ]
        tables.append(Steps.of_rows(groups, np.array(costs, dtype=np.int64), np.array(of, dtype=np.int64)))
        rows.append(listed)
    instance = PricingInstance(
        tables[0], tables[1] if offer.short else None, count.astype(np.int64), offer.groups, limits
    )
    return Fixing(offer, domains, axis, kind, steps_of, area, prices(instance), (rows[0], rows[1]))


def _kinds(offer: Offer, domains: Integers, axis: Integers) -> tuple[Integers, list[list[Step]], list[int]]:
    """Return the kind of each domain, and the steps and the axis of each kind."""
    axes = int(axis.max(initial=0)) + 1
    codes, kind = np.unique(offer.slots[domains] * axes + axis, return_inverse=True)
    found = [
        steps(slots, offer.request, offer.request.groups, overflow=offer.overflow, share=offer.share)
        for slots in (codes // axes).tolist()
    ]
    return kind, found, (codes % axes).tolist()


def _of_blocks(
    offer: Offer, domains: Integers, axis: Integers, area: Integers, limits: Sequence[int | None]
) -> PricingInstance:
    """Return blocks as areas: each is left aside, or used with all that its domains hold."""
    areas = int(area.max(initial=-1)) + 1
    held = np.zeros((areas, len(limits)), dtype=np.int64)
    np.add.at(held, (area, axis), offer.capacities[domains])
    some = np.flatnonzero(held.any(axis=1))
    of = np.concatenate((np.arange(areas), some))
    order = np.argsort(of, kind="stable")
    groups = np.concatenate((np.zeros_like(held), held[some]))[order]
    whole = Steps.of_rows(groups, (np.arange(len(of)) >= areas).astype(np.int64)[order], of[order])
    copies = np.ones(areas, dtype=np.int64)
    if not offer.short:
        return PricingInstance(whole, None, copies, offer.groups, limits)
    # The short group lies where it costs the fewest whole groups: zero, or one of its axis.
    fits = offer.beside[domains] >= 0
    lost = np.full_like(held, _NOWHERE)
    np.minimum.at(lost, (area[fits], axis[fits]), (offer.capacities - offer.beside)[domains][fits])
    at, on = np.nonzero(lost < _NOWHERE)
    beside = held[at]
    beside[np.arange(len(at)), on] -= lost[at, on]
    return PricingInstance(whole, Steps.of_rows(beside, np.ones_like(at), at), copies, offer.groups, limits)
