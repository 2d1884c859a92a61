"""Which domains a plan can use at all, by what one more group is worth (docs/design/calculus.md, Method).

At a price a group, every domain (or block) is worth using or not, and all of them together cost at least what these
do. Whoever is further from its best than a plan's cost is from that bound is in no plan of so little cost. It is the
argument of `pricing`, for costs that do not depend on how many groups a domain takes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy

MOST = 1 << 62
"""Products of costs and groups stay below: they are int64."""


class Areas(NamedTuple):
    """What is paid for once: the number of each domain's area, and what each area costs."""

    of: Integers
    cost: Integers


def areas(capacity: Capacity, policy: Policy, domains: Integers) -> Areas:
    """Return what a policy compares first after spares, of some domains."""
    if policy is Policy.FEWEST_BLOCKS:
        names, of = np.unique(capacity.inventory.blocks[domains], return_inverse=True)
        return Areas(of, np.ones(len(names), dtype=np.int64))
    one_each = np.arange(len(domains))
    return Areas(one_each, capacity.free[domains] if policy is Policy.LEAST_WASTE else np.ones_like(one_each))


class Narrowed(NamedTuple):
    """Domains that a plan can use, by number, and how many groups each of them has at least in any."""

    domains: Integers
    least: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """The price at which the bound is highest.

    `held` are the most whole groups of each domain, `price` what one is worth there, `area` the number of its area: of
    what is paid for once. `reduced` is what each area costs beyond what its groups are worth, `last` what the short
    group costs at least, and `roomy` are the areas where it is one more. `bound` is what any plan costs. Prices and
    costs are in parts of the `denominator`.
    """

    held: Integers
    area: Integers
    reduced: Integers
    roomy: Any
    price: Integers
    denominator: int
    last: int
    bound: int

    @property
    def fewest(self) -> int:
        """Return what any plan costs at least."""
        return -(-self.bound // self.denominator)

    def narrowed(self, most: int) -> Narrowed:
        """Return what is in plans that cost no more than `most`."""
        slack = most * self.denominator - self.bound
        # Where the short group is one more, an area may cost as much as it does elsewhere.
        used = self.reduced <= slack + np.where(self.roomy, self.last, 0)
        domains = np.flatnonzero(used[self.area])
        # A group less than an area holds costs its price; so no domain of it lacks more of them than the slack pays.
        # That holds where the short group is, too: it costs a price at most, and is one of the domain's groups.
        full = (self.reduced < -slack)[self.area]
        least = np.where(full, np.maximum(self.held - slack // np.maximum(self.price, 1), 0), 0)
        return Narrowed(domains, least[domains])


def worth(held: Integers, area: Integers, cost: Integers, groups: int, extra: Integers | None) -> Worth | None:
    """Return the best price for so many whole groups; None where there is none, or 64 bits do not hold it.

    `cost` has a number above 0 for each area, `area` the number of each domain's area. `extra`, where one short group
    comes beside the whole ones, has 1 for each domain that has room for it when it is full, else 0.
    """
    holds = np.bincount(area, weights=held, minlength=len(cost)).astype(np.int64)
    some = np.flatnonzero(holds)
    if groups < 1 or int(holds.sum()) < groups or float(cost.sum()) * float(holds.sum() + groups) >= MOST:
        return None
    # The areas that cost least a group come first; the one that reaches the number of groups sets the price.
    order = some[np.argsort(cost[some] / holds[some], kind="stable")]
    reaching = order[int(np.searchsorted(np.cumsum(holds[order]), groups))]
    price, denominator = int(cost[reaching]), int(holds[reaching])
    reduced = cost * denominator - holds * price
    roomy = np.bincount(area, weights=0 * area if extra is None else extra, minlength=len(cost)) > 0
    # In an area that has no room for it beside the others the short group takes the place of a whole one.
    last = 0 if extra is None else int((np.maximum(reduced, 0) + np.where(roomy, 0, price)).min())
    bound = price * groups + int(np.minimum(reduced, 0).sum()) + last
    return Worth(held, area, reduced, roomy, np.full_like(held, price), denominator, last, bound)
