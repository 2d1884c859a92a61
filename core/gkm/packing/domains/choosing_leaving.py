"""Which domains a run uses and what each takes, where one scope or none pays for it and spares must leave."""

from collections.abc import Mapping, Sequence

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.costs import Costs
from gkm.packing.domains.cover import cover
from gkm.packing.domains.options import WHOLE, Option, shape
from gkm.packing.domains.pricing import Step, prices
from gkm.packing.domains.reading import Taken, read
from gkm.packing.inventory import Integers
from gkm.packing.values import Request


def taken_leaving(
    capacity: Capacity, request: Request, domains: Integers, blocks: Sequence[range], weights: Costs
) -> list[Taken]:
    """Return what each of some domains takes, by its number among them. The run must fit in them, spares anywhere.

    Only what a plan can have that is as good as the bound is put into the tables. They show how good a plan is; where
    it is less good than the bound, what a plan of that cost can have is put in, and so on.

    Raises:
        TooLargeError: the run has too many groups, or could use too many domains, to be solved exactly.
    """
    size = shape(request)
    slots, free = capacity.domain_slots[domains].tolist(), capacity.free[domains].tolist()
    found = prices(slots, size, request.groups)
    leaving = found.fewest
    while True:
        allowed = found.allowed(leaving)
        least = {kind: min((step.fewest for step in some), default=0) for kind, some in allowed.items()}
        extra = request.groups - sum(least[kind] for kind in slots)
        if extra >= 0:
            known: dict[tuple[int, int], list[Option]] = {}
            for alike in zip(slots, free, strict=True):
                if alike not in known:
                    known[alike] = _options(allowed[alike[0]], least[alike[0]], alike[1], weights)
            offered = [known[alike] for alike in zip(slots, free, strict=True)]
            forced = frozenset(number for number, kind in enumerate(slots) if least[kind])
            tables = cover(offered, blocks, weights, (extra,), short=size.missing > 0, forced=forced)
            start = (1 if size.missing else 0, extra)
            cost = tables.least(start)
            if cost < weights.impossible and cost // weights.spare <= leaving:
                return [_counted(taken, slots, least) for taken in read(tables, [start])]
            if cost < weights.impossible:
                leaving = cost // weights.spare
                continue
        leaving += max(1, leaving - found.fewest)


def _options(allowed: Sequence[Step], least: int, gpus: int, weights: Costs) -> list[Option]:
    """Return what a domain can take beyond the groups that it takes in any case."""
    base = weights.domain + gpus * weights.gpu
    return [
        Option((step.most - least,), 0 if step.short else WHOLE, base + step.leaving * weights.spare)
        for step in allowed
        if step.most
    ]


def _counted(taken: Taken, slots: Sequence[int], least: Mapping[int, int]) -> Taken:
    return taken._replace(groups=(taken.groups[0] + least[slots[taken.domain]],))
