"""Plan one run: return the best plan under its policy, or why it does not fit.

Pure; the order of nodes has no effect.
"""

import gc
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

import numpy as np

from gkm.api.grammar import agree, count_of
from gkm.api.plans import PlanMetrics
from gkm.packing.area_rules import rule_text, without_racks
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.nodes.assembly import assemble
from gkm.packing.placement import best_placement, figure, fits
from gkm.packing.program import SECONDS
from gkm.packing.self_check import verify
from gkm.packing.values import (
    AreaRule,
    Distance,
    Group,
    Level,
    Node,
    Plan,
    Policy,
    Refusal,
    Request,
    TooLargeError,
)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable Python's garbage collection during the block and restore its state afterwards.

    Of 25,000 nodes in memory one full collection takes 40 ms, more than most plans (bench/packing_times.py). Planning
    makes values and no cycles. If two threads plan at once, the first that ends enables collection again, which does no
    harm.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def plan(nodes: Iterable[Node] | Inventory, request: Request, inventory_version: str) -> Plan | Refusal:
    """Return the best plan for the request, in the largest size that fits; a refusal if no size fits.

    An Inventory saves its making where many runs are planned with the same nodes.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large: not even one plan was found within the limits.
        InvalidPlanError: the planner broke its own rules.
    """
    # 1. Domains offer slots; the largest size that fits is found, in half of the time.
    # 2. The best placement of this size is found: how many groups each domain takes.
    # 3. Pods and spares get nodes, and the plan is checked against nodes and request.
    # 4. Where no size fits, the refusal says what keeps the run from fitting.
    with uncollected():
        inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
        start = monotonic()
        offer = capacity(inventory, request)
        sized = _largest_size(offer, request, start + SECONDS / 2)
        planned = None if sized is None else _planned(offer, request, sized, inventory_version, start + SECONDS)
        if planned is not None:
            return planned
        largest = largest_groups(offer, request)
        return Refusal(*binding(offer, request, largest), largest)


def _planned(offer: Capacity, request: Request, sized: Request, inventory_version: str, deadline: float) -> Plan | None:
    placement = best_placement(offer, sized, deadline)
    if placement is None:
        return None
    groups = assemble(placement.capacity, sized, placement.chosen)
    verify(offer.inventory, sized, groups)
    return Plan(
        request=request,
        gpus=sized.gpus,
        groups=groups,
        metrics=metrics(offer, sized, groups, placement.bound),
        inventory_version=inventory_version,
        hash=plan_hash(request, groups, inventory_version),
    )


def metrics(offer: Capacity, request: Request, groups: Sequence[Group], bound: int | None) -> PlanMetrics:
    """Return the costs of a plan; `request` has the size that was planned.

    `bound` is the bound of a placement for it, None if no other plan is known.
    """
    inventory = offer.inventory
    places = {group.place for group in groups}
    domains = sorted(inventory.domains[place] for place in places)
    spares = [spare for group in groups for spare in group.spares]
    taken = sum(group.gpus for group in groups) + sum(spare.gpus for spare in spares if spare.place in places)
    stranded = sum(int(offer.free[domain]) for domain in domains) - taken
    elsewhere = sum(any(spare.distance is not Distance.DOMAIN for spare in group.spares) for group in groups)
    reached = figure(offer, request.policy, domains)
    beside = taken if request.policy is Policy.LEAST_WASTE else 0
    pristine = sum(
        all(inventory.nodes[number].free == inventory.nodes[number].total for number in inventory.in_domain(domain))
        for domain in domains
    )
    least = max(0, (reached if bound is None else min(reached, bound)) - beside)
    return PlanMetrics(
        domains=len(places),
        lower_bound=least,
        gap=reached - beside - least,
        stranded_gpus=stranded,
        blocks=len({place[:3] for place in places}),
        pristine_domains=pristine,
        spares_elsewhere=elsewhere,
    )


def _largest_size(offer: Capacity, request: Request, deadline: float) -> Request | None:
    """Return the request in the largest of its sizes that fits."""
    if fits(offer, request, deadline):
        return request
    return largest_fitting(request, request.smaller_sizes, lambda sized: fits(offer, sized, deadline))


def largest_groups(offer: Capacity, request: Request) -> int:
    """Return how many whole groups of a run fit."""
    deadline, unit = monotonic() + SECONDS, request.unit_gpus
    most = min(request.groups * request.group_gpus, int(offer.domain_slots.sum()) * request.pod_gpus) // unit
    found = largest_fitting(request, range(most * unit, 0, -unit), lambda sized: fits(offer, sized, deadline))
    return 0 if found is None else found.groups


def largest_fitting(request: Request, sizes: range, fits: Callable[[Request], bool]) -> Request | None:
    """Return the request with the first of the falling `sizes` at which it fits; None if it fits at none of them.

    A smaller run fits where a larger does, unless it is balanced: then one size after another is tried.
    """
    size = first_that(sizes, lambda gpus: fits(replace(request, gpus=gpus, balanced=False)))
    if size is not None and request.balanced:
        rest = sizes[sizes.index(size) :]
        size = next((gpus for gpus in rest if fits(replace(request, gpus=gpus))), None)
    return None if size is None else replace(request, gpus=size)


def first_that(numbers: range, holds: Callable[[int], bool]) -> int | None:
    """Return the first number for which `holds` is true; it must then be true for all later numbers (binary search)."""
    if not numbers or not holds(numbers[-1]):
        return None
    return numbers[bisect_left(numbers, 1, hi=len(numbers) - 1, key=holds)]


def binding(offer: Capacity, request: Request, largest: int) -> tuple[Level, str]:
    """Return the first level that prevents a run from fitting, and the reason. The run must not fit.

    Levels are looked at from the inventory down: are there nodes, do scopes withhold them, or rules for areas, is a
    node large enough for a pod, a domain for a group (for the whole run if it may not spread), an area for the run
    within it, and do equal shares withhold capacity; else there is too little in all. The caller chose the nodes and
    knows the levels of selectors: here all nodes may be used.
    """
    slots = offer.domain_slots
    if not offer.inventory.nodes:
        return Level.FLAVOR, "there is no node that the run may use: no node is healthy, tolerated and of its flavor"
    unlimited = replace(request, ceilings=())
    if request.ceilings and fits(capacity(offer.inventory, unlimited), unlimited):
        given = ", ".join(f"{ceiling.scope} gives {count_of(ceiling.gpus, 'GPU')}" for ceiling in request.ceilings)
        return Level.SCOPE, (
            f"{_wanted(request)} would fit on the nodes there are, but not within the scopes ({given}): "
            f"{_largest(largest)}"
        )
    if (ruled := _of_rules(offer, request, largest)) is not None:
        return ruled
    if not slots.any():
        return Level.NODE, _no_node(offer.inventory, request)
    found = _of_domain(int(slots.max()), request, largest) or _of_area(offer, request, largest)
    if found is None and request.balanced and _fits_smallest(offer, replace(request, balanced=False)):
        unequal = f"{_wanted(request)} would fit, but not equally many in each domain that is used"
        found = Level.BALANCE, f"{unequal}: {_largest(largest)}"
    return found or (Level.CAPACITY, _too_little(slots, request, largest))


def _of_rules(offer: Capacity, request: Request, largest_groups: int) -> tuple[Level, str] | None:
    """Return the level of the first rule for areas that alone keeps a run from fitting, or of all rules together."""
    if not request.per_area or not _fits_without(offer, request, request.per_area):
        return None
    alone = (rule for rule in request.per_area if _fits_without(offer, request, (rule,)))
    rule = next(alone, None)
    named = request.per_area if rule is None else (rule,)
    unknown = without_racks(offer, request)
    lie = f"{count_of(unknown, 'domain')} {agree(unknown, 'lies', 'lie')} in no single known rack"
    aside = f"; {lie}, so that the run does not use {agree(unknown, 'it', 'them')}" if unknown else ""
    return named[0].level, (
        f"{_wanted(request)} would fit, but not with {' and '.join(map(rule_text, named))}: "
        f"{_largest(largest_groups)}{aside}"
    )


def _fits_without(offer: Capacity, request: Request, rules: Sequence[AreaRule]) -> bool:
    free = replace(request, per_area=tuple(rule for rule in request.per_area if rule not in rules))
    return _fits_smallest(capacity(offer.inventory, free), free)


def _too_little(slots: Integers, request: Request, largest_groups: int) -> str:
    bare = count_of(int((slots // request.group_pods).sum()), "group")
    return (
        f"{_wanted(request)} {agree(request.groups, 'does', 'do')} not fit: domains have room for {int(slots.sum())} "
        f"{_pods_of(request)}, spares included, and {bare} without spares; {_largest(largest_groups)}"
    )


def _of_domain(most: int, request: Request, largest_groups: int) -> tuple[Level, str] | None:
    """Return the level of domains, if the largest has no slots enough for a group, or for a run that is in one."""
    if not request.may_spread:
        return Level.DOMAIN, (
            f"the run may not spread and takes {request.all_pods} {_pods_of(request)} in one domain, spares included; "
            f"the largest domain has room for {most}: {_largest(largest_groups)}"
        )
    pods = request.last_pods if request.groups == 1 else request.group_pods
    if most >= pods:
        return None
    group = f"a group takes {pods} {_pods_of(request)} in one domain"
    return Level.DOMAIN, f"{group}; the largest domain has room for {most}"


def _no_node(inventory: Inventory, request: Request) -> str:
    nodes = [node for node in inventory.nodes if node.scopes or not request.ceilings]
    pod, largest = count_of(request.pod_gpus, "GPU"), max((node.total for node in nodes), default=0)
    if largest < request.pod_gpus:
        return f"no node has {pod}, which one pod takes; the largest has {largest}"
    return f"no node has {pod} free, which one pod takes; the most is {max(node.free for node in nodes)}"


def _of_area(offer: Capacity, request: Request, largest_groups: int) -> tuple[Level, str] | None:
    """Return the level of the area that the run stays within, if the area withholds capacity at all shares."""
    free = replace(request, balanced=False)
    if request.within is None or not _fits_smallest(offer, replace(free, within=None)):
        return None
    if request.balanced and _fits_smallest(offer, free):
        return None
    area = request.within.value
    most = int(np.bincount(offer.inventory.areas(area), weights=offer.domain_slots).max())
    return Level(area), (
        f"{_wanted(request)} would fit{' in unequal shares' if request.balanced else ''}, but not within one {area}; "
        f"the largest has room for {most} {_pods_of(request)}, spares included: {_largest(largest_groups)}"
    )


def _fits_smallest(offer: Capacity, request: Request) -> bool:
    """Return whether a run fits in its smallest size; what cannot be found out in time does not count."""
    try:
        return fits(offer, request.smallest)
    except TooLargeError:
        return False


def _pods_of(request: Request) -> str:
    return f"pods of {count_of(request.pod_gpus, 'GPU')}"


def _wanted(request: Request) -> str:
    spares = f" and {count_of(request.spares, 'spare pod')} each" if request.spares else ""
    return f"{count_of(request.groups, 'group')} of {count_of(request.group_gpus, 'GPU')}{spares}"


def _largest(groups: int) -> str:
    return f"{count_of(groups, 'whole group')} {agree(groups, 'fits', 'fit')}" if groups else "not one whole group fits"
