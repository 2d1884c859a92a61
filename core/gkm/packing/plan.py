"""One run: the best plan under its policy, or why it does not fit. Pure, and the same for any order of nodes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import lcm

from gkm.packing.collecting import uncollected
from gkm.packing.domains.bound import lower_bound
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.domains.choosing import Chosen, choose, fits
from gkm.packing.domains.choosing_scopes import choose_of_scopes
from gkm.packing.domains.counting import counted
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.levels import binding
from gkm.packing.nodes.apart import set_apart
from gkm.packing.nodes.assembling import assemble
from gkm.packing.self_check import verify
from gkm.packing.values import Distance, Group, Metrics, Node, Plan, Policy, Refusal, Request


def plan(nodes: Iterable[Node] | Inventory, request: Request, inventory_version: str) -> Plan | Refusal:
    """Return the best plan under the request's policy, of the largest size that fits; else why it does not fit.

    An Inventory saves its making where many runs are planned with the same nodes.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large to be solved exactly.
        InvalidPlanError: the planner broke its own rules.
    """
    with uncollected():
        inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
        offer = capacity(inventory, request)
        sized = _largest_size(offer, request)
        planned = None if sized is None else _planned(offer, request, sized, inventory_version)
        return planned or _refusal(offer, request)


def _planned(offer: Capacity, request: Request, sized: Request, inventory_version: str) -> Plan | None:
    chosen = _choose(offer, sized)
    groups = None if chosen is None else assemble(offer, sized, chosen)
    if chosen is None or groups is None:
        return None
    if len(request.ceilings) > 1:
        groups = set_apart(offer, sized, groups)
    verify(offer.inventory, sized, groups)
    return Plan(
        request=request,
        gpus=sized.gpus,
        groups=groups,
        metrics=metrics(offer, sized, [item.domain for item in chosen], groups),
        inventory_version=inventory_version,
        hash=plan_hash(request, groups, inventory_version),
    )


def metrics(offer: Capacity, request: Request, domains: Sequence[int], groups: Sequence[Group]) -> Metrics:
    """Return what a plan costs that has groups in these domains; `request` is of the size that was planned."""
    inventory = offer.inventory
    places = {inventory.places[domain] for domain in domains}
    spares = [spare for group in groups for spare in group.spares]
    taken = sum(group.gpus for group in groups) + sum(spare.gpus for spare in spares if spare.place in places)
    stranded = sum(int(offer.free[domain]) for domain in domains) - taken
    elsewhere = sum(any(spare.distance is not Distance.DOMAIN for spare in group.spares) for group in groups)
    blocks = len({place[:3] for place in places})
    compared = {Policy.FEWEST_BLOCKS: blocks, Policy.LEAST_WASTE: stranded}.get(request.policy, len(places))
    least = lower_bound(offer, request, leaving=elsewhere, taken=taken, reached=compared)
    pristine = sum(
        all(inventory.nodes[number].free == inventory.nodes[number].total for number in inventory.in_domain(domain))
        for domain in domains
    )
    return Metrics(len(places), blocks, stranded, pristine, elsewhere, least, compared - least)


def _largest_size(offer: Capacity, request: Request) -> Request | None:
    """Return the request in the largest of its sizes that fits: a smaller one always fits where a larger does."""

    def sized(smaller: int) -> Request:
        return replace(request, gpus=request.gpus - smaller * step)

    if _fits(offer, request):
        return request
    malleability = request.malleability
    if malleability is None:
        return None
    # Sizes that do not divide into pods are none of a run.
    step = lcm(malleability.step_gpus, request.pod_gpus)
    count = (request.gpus - malleability.min_gpus) // step
    smaller = _first_true(1, count, lambda number: _fits(offer, sized(number)))
    return None if smaller is None else sized(smaller)


def _largest_groups(offer: Capacity, request: Request) -> int:
    slots = int(offer.domain_slots.sum())
    most = min(request.groups, slots // request.group_pods)

    def fits_less(fewer: int) -> bool:
        return most == fewer or _fits(offer, replace(request, gpus=(most - fewer) * request.group_gpus))

    return most - (_first_true(0, most, fits_less) or 0)


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


def _choose(offer: Capacity, request: Request) -> list[Chosen] | None:
    return choose_of_scopes(offer, request) if len(request.ceilings) > 1 else choose(offer, request)


def _fits(offer: Capacity, request: Request) -> bool:
    if len(request.ceilings) > 1:
        known = counted(offer, request)
        return choose_of_scopes(offer, request) is not None if known is None else known
    return fits(offer, request, leave=request.may_spread and request.spares > 0)


def _refusal(offer: Capacity, request: Request) -> Refusal:
    largest = _largest_groups(offer, request)
    level, message = binding(offer, request, largest)
    return Refusal(level, message, largest)
