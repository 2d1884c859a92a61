"""Which domains a run uses and what each takes, where one scope or none pays for it and all spares stay."""

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.costs import Costs
from gkm.packing.domains.cover import Tables, cover, runs
from gkm.packing.domains.narrowing import Narrowed, Worth, areas, worth
from gkm.packing.domains.options import WHOLE, Option, shape
from gkm.packing.domains.reading import Taken, read
from gkm.packing.inventory import Integers
from gkm.packing.values import Policy, Request


def taken_staying(capacity: Capacity, request: Request, domains: Integers, weights: Costs) -> list[Taken]:
    """Return what each of some domains takes, by its number among them. The run must fit in them.

    Only what a plan can use that is as good as the bound is put into the tables. They show how good a plan is; where
    it is less good than the bound, what a plan of that cost can use is put in, and so on.

    Raises:
        TooLargeError: the run has too many groups, or could use too many domains, to be solved exactly.
    """
    short = int(request.last_pods < request.group_pods)
    found = _worth(capacity, request, domains)
    narrowed = Narrowed(np.arange(len(domains)), np.zeros(len(domains), dtype=np.int64))
    most = 0
    if found is not None:
        most, narrowed = found.fewest, found.narrowed(found.fewest)
    first = {Policy.FEWEST_BLOCKS: weights.block, Policy.LEAST_WASTE: weights.gpu}.get(request.policy, weights.domain)
    while True:
        start = (short, request.groups - int(narrowed.least.sum()))
        if start[1] >= short:
            tables = _tables(capacity, request, domains, narrowed, weights)
            cost = tables.least(start)
            if cost < weights.impossible and (found is None or cost // first <= most):
                return [_counted(taken, narrowed) for taken in read(tables, [start])]
        if found is None:
            raise AssertionError("the run fits")
        reached = start[1] >= short and cost < weights.impossible
        most = cost // first if reached else most + max(1, most - found.fewest)
        narrowed = found.narrowed(most)


def _worth(capacity: Capacity, request: Request, domains: Integers) -> Worth | None:
    size = shape(request)
    unit, slots = size.pods + size.spares, capacity.domain_slots[domains]
    area, cost = areas(capacity, request.policy, domains)
    if not size.missing:
        return worth(slots // unit, area, cost, request.groups, None)
    return worth(slots // unit, area, cost, request.groups - 1, (slots + size.missing) // unit - slots // unit)


def _tables(capacity: Capacity, request: Request, domains: Integers, narrowed: Narrowed, weights: Costs) -> Tables:
    """Return the tables of the groups beyond what every domain has in any case."""
    size = shape(request)
    unit = size.pods + size.spares
    here = domains[narrowed.domains]
    known: dict[tuple[int, int, int], list[Option]] = {}
    offered: list[list[Option]] = []
    rows = zip(capacity.domain_slots[here].tolist(), capacity.free[here].tolist(), narrowed.least.tolist(), strict=True)
    for slots, free, least in rows:
        alike = slots, free, least
        if alike not in known:
            base = weights.domain + free * weights.gpu
            known[alike] = [Option((slots // unit - least,), WHOLE, base)] if slots >= unit else []
            if size.missing and slots + size.missing >= unit:
                known[alike].append(Option(((slots + size.missing) // unit - least,), 0, base))
        offered.append(known[alike])
    blocks = runs(capacity.inventory.blocks[here])
    extra = request.groups - int(narrowed.least.sum())
    forced = frozenset(np.flatnonzero(narrowed.least).tolist())
    return cover(offered, blocks, weights, (extra,), short=size.missing > 0, forced=forced)


def _counted(taken: Taken, narrowed: Narrowed) -> Taken:
    groups = taken.groups[0] + int(narrowed.least[taken.domain])
    return taken._replace(domain=int(narrowed.domains[taken.domain]), groups=(groups,))
