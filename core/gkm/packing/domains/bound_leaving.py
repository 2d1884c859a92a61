"""What no plan is better than where spares must leave, when `bound` does not reach what was found (calculus.md, Proof).

Every domain at its best and the largest that slack allows is more than all of them together can be: the slack is one
for all. Here it is spent: a knapsack over slack and groups, of what each domain can take within the prices.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from gkm.packing.domains.pricing import Prices
from gkm.packing.inventory import Integers

MAX_STEPS = 20_000_000
"""Cells of all choices together: some hundredths of a second, and seldom needed."""
_NEVER = 1 << 62


def least_within(found: Prices, slots: Sequence[int], cost: Sequence[int], groups: int, leaving: int) -> int | None:
    """Return the least cost of domains in any plan in which no more than `leaving` groups have spares that leave.

    `slots` and `cost` have a number for each domain; it costs that if a group is in it. None where it is too much to
    find out.
    """
    choices = found.choices(leaving)
    slack, price = found.slack(leaving), found.price.numerator
    always = {kind: min((choice.groups for choice in some), default=0) for kind, some in choices.items()}
    extra = groups - sum(always[kind] for kind in slots)
    if extra < 0:
        return None
    # More groups than there are cost their price, so there are few of them.
    shape = 1 + (found.short is not None), slack + 1, extra + slack // price + 1
    if prod(shape) * sum(len(choices[kind]) for kind in slots) > MAX_STEPS:
        return None
    table = np.full(shape, _NEVER, dtype=np.int64)
    table[0, 0, 0] = 0
    for kind, paid in zip(slots, cost, strict=True):
        after = np.full(shape, _NEVER, dtype=np.int64)
        for choice in choices[kind]:
            more = choice.groups - always[kind]
            before, into = (table[:1], after[1:]) if choice.short else (table, after)
            to = into[:, choice.slack :, more:]
            np.minimum(to, before[:, : to.shape[1], : to.shape[2]] + (paid if choice.groups else 0), out=to)
        table = after
    least = int(table[-1][_within(slack, price, extra, shape[1:])].min())
    return least if least < _NEVER else None


def _within(slack: int, price: int, extra: int, shape: tuple[int, ...]) -> Integers:
    """Return which cells are of groups enough, and of slack that is left after what is beyond them is paid."""
    spent, groups = np.indices(shape)
    found: Integers = (groups >= extra) & (spent + price * (groups - extra) <= slack)
    return found
