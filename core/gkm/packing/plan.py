"""One run: the best plan under its policy, or why it does not fit. Pure, and the same for any order of nodes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic

from gkm.packing.collecting import uncollected
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.levels import binding
from gkm.packing.nodes.assembly import assemble
from gkm.packing.placement import best_placement, figure, fits
from gkm.packing.program import SECONDS
from gkm.packing.self_check import verify
from gkm.packing.values import Distance, Group, Metrics, Node, Plan, Policy, Refusal, Request


def plan(nodes: Iterable[Node] | Inventory, request: Request, inventory_version: str) -> Plan | Refusal:
    """Return the best plan under the request's policy, of the largest size that fits; else why it does not fit.

    An Inventory saves its making where many runs are planned with the same nodes.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large: not even one plan was found within the limits.
        InvalidPlanError: the planner broke its own rules.
    """
    with uncollected():
        inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
        start = monotonic()
        offer = capacity(inventory, request)
        # A size that was found in half of the time leaves as much for its placement.
        sized = _largest_size(offer, request, start + SECONDS / 2)
        planned = None if sized is None else _planned(offer, request, sized, inventory_version, start + SECONDS)
        return planned or _refusal(offer, request)


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
        metrics=metrics(offer, sized, [item.domain for item in placement.chosen], groups, placement.bound),
        inventory_version=inventory_version,
        hash=plan_hash(request, groups, inventory_version),
    )


def metrics(
    offer: Capacity, request: Request, domains: Sequence[int], groups: Sequence[Group], bound: int | None = None
) -> Metrics:
    """Return what a plan costs that has groups in these domains; `request` is of the size that was planned.

    `bound` is that of a placement; without one it is that of the best placement from scratch.
    """
    inventory = offer.inventory
    places = {inventory.places[domain] for domain in domains}
    spares = [spare for group in groups for spare in group.spares]
    taken = sum(group.gpus for group in groups) + sum(spare.gpus for spare in spares if spare.place in places)
    stranded = sum(int(offer.free[domain]) for domain in domains) - taken
    elsewhere = sum(any(spare.distance is not Distance.DOMAIN for spare in group.spares) for group in groups)
    reached = figure(offer, request.policy, domains)
    if bound is None:
        scratch = best_placement(offer, request)
        bound = reached if scratch is None else min(reached, scratch.bound)
    beside = taken if request.policy is Policy.LEAST_WASTE else 0
    pristine = sum(
        all(inventory.nodes[number].free == inventory.nodes[number].total for number in inventory.in_domain(domain))
        for domain in domains
    )
    blocks = len({place[:3] for place in places})
    least = max(0, bound - beside)
    return Metrics(len(places), blocks, stranded, pristine, elsewhere, least, reached - beside - least)


def _largest_size(offer: Capacity, request: Request, deadline: float) -> Request | None:
    """Return the request in the largest of its sizes that fits."""

    def sized(smaller: int) -> Request:
        return replace(request, gpus=request.gpus - smaller * request.size_step)

    if fits(offer, request, deadline):
        return request
    smaller = _fewest(1, request.size_steps, sized, offer, deadline)
    return None if smaller is None else sized(smaller)


def _largest_groups(offer: Capacity, request: Request) -> int:
    slots = int(offer.domain_slots.sum())
    most = min(request.groups, slots // request.group_pods)

    def sized(fewer: int) -> Request:
        return replace(request, gpus=(most - fewer) * request.group_gpus)

    fewer = _fewest(0, most - 1, sized, offer, monotonic() + SECONDS)
    return 0 if fewer is None else most - fewer


def _fewest(first: int, last: int, sized: Callable[[int], Request], offer: Capacity, deadline: float) -> int | None:
    """Return the first number of a range for which a run fits, which is the smaller the larger the number.

    A smaller run fits where a larger does, unless it is balanced: then one size after another is tried.
    """
    found = _first_true(first, last, lambda number: fits(offer, replace(sized(number), balanced=False), deadline))
    if found is None or not sized(found).balanced:
        return found
    return next((number for number in range(found, last + 1) if fits(offer, sized(number), deadline)), None)


def _first_true(first: int, last: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first number of a range for which something holds that then holds for all that follow."""
    if first > last or not holds(last):
        return None
    while first < last:
        middle = (first + last) // 2
        if holds(middle):
            last = middle
        else:
            first = middle + 1
    return first


def _refusal(offer: Capacity, request: Request) -> Refusal:
    largest = _largest_groups(offer, request)
    level, message = binding(offer, request, largest)
    return Refusal(level, message, largest)
