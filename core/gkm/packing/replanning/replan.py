"""A run that has a plan is planned again: fewest groups moved, nobody touched who can stay (calculus.md). Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import lcm
from typing import NamedTuple

from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.domains.choosing import Chosen
from gkm.packing.hashing import plan_hash
from gkm.packing.inventory import Inventory
from gkm.packing.plan import metrics, plan
from gkm.packing.replanning.choosing import choose_again
from gkm.packing.replanning.flow import dealt_as_one
from gkm.packing.replanning.lacking import Guarded
from gkm.packing.replanning.reasons import NOT_ALL_SEEN, lacking, reasons, reasons_from_scratch
from gkm.packing.replanning.scopes import choose_again_of_scopes
from gkm.packing.replanning.seating import Seated, seat_again
from gkm.packing.replanning.spares import spares_again
from gkm.packing.replanning.standing import Member, Remains, remains
from gkm.packing.replanning.values import Repair, Replanned, Standing
from gkm.packing.self_check import verify
from gkm.packing.values import Group, Metrics, Node, Plan, Policy, Refusal, Request, Share


def replan(
    nodes: Iterable[Node] | Inventory, previous: Standing, request: Request, inventory_version: str
) -> Replanned | Refusal:
    """Return a plan for a run that has one, which moves the fewest groups and touches none that can stay as it is.

    `nodes` are those that the run may use now, without the lost and the cordoned; what the run itself takes counts as
    free. Where groups cannot be placed beside those that stay, the run is planned from scratch; where that does not
    fit either, a malleable run keeps what stands and becomes smaller; else it is said why nothing fits.

    Raises:
        InvalidInventoryError: the nodes contradict each other or themselves.
        TooLargeError: the run and the inventory are together too large to be solved exactly.
        InvalidPlanError: the planner broke its own rules.
    """
    inventory = nodes if isinstance(nodes, Inventory) else Inventory.from_nodes(nodes)
    offer = capacity(inventory, request)
    again = _again(offer, request, request, previous, inventory_version)
    if again.found is not None:
        return again.found
    fresh = plan(inventory, request, inventory_version)
    if isinstance(fresh, Plan) and fresh.gpus == request.gpus:
        return _from_scratch(previous, fresh, all_seen=again.all_seen)
    return _smaller(offer, request, previous, inventory_version) or (
        _from_scratch(previous, fresh, all_seen=again.all_seen) if isinstance(fresh, Plan) else fresh
    )


class _Again(NamedTuple):
    """A plan that keeps what stands, None where none was found; and whether every way was looked at."""

    found: Replanned | None
    all_seen: bool = True


def _smaller(offer: Capacity, request: Request, previous: Standing, version: str) -> Replanned | None:
    """Return the largest smaller size of a malleable run that keeps what stands; None if there is none."""
    malleability = request.malleability
    if malleability is None:
        return None
    step = lcm(malleability.step_gpus, request.pod_gpus)
    # What is larger than all slots together need not be tried, and may be far more.
    most = int(offer.domain_slots.sum()) * request.pod_gpus
    first = max(1, -(-(request.gpus - most) // step))
    sizes = range(request.gpus - first * step, malleability.min_gpus - 1, -step)
    tried: dict[int, Replanned | None] = {}

    def fits(gpus: int) -> bool:
        tried[gpus] = _again(offer, request, replace(request, gpus=gpus), previous, version).found
        return tried[gpus] is not None

    # A smaller run fits wherever a larger does: False and then True.
    at = bisect_left(sizes, 1, key=fits)
    return tried[sizes[at]] if at < len(sizes) else None


def _again(offer: Capacity, request: Request, sized: Request, previous: Standing, version: str) -> _Again:
    """Return the plan that keeps what stands, if the others fit beside it."""
    if sized.gpus // sized.pod_gpus > int(offer.domain_slots.sum()):
        return _Again(None)
    what = remains(offer, sized, previous.groups, request.groups)
    left = _left(offer, what.untouched)
    chosen, all_seen = _choose(left, sized, what)
    if chosen is None:
        return _Again(None, all_seen)
    seated, used = seat_again(left, sized, what, chosen)
    guarded = _guarded(offer, what, seated, used)
    if not spares_again(offer, sized, guarded):
        untouched = frozenset(member.index for member in what.untouched)
        dealt = dealt_as_one(offer, sized, untouched, _guarded(offer, what, seated, used))
        if dealt is None:
            return _Again(None, all_seen=False)
        guarded, seated = dealt, [group.seated for group in dealt if group.seated.index not in untouched]
    groups = tuple(_group(offer, sized, group) for group in guarded)
    if not what.lenient and any(len(group.spares) < sized.spares for group in groups):
        return _Again(None, all_seen)
    verify(offer.inventory, sized, groups)
    made = Plan(
        request=request,
        gpus=sized.gpus,
        groups=groups,
        metrics=_metrics(offer, sized, sorted({group.seated.domain for group in guarded}), groups),
        inventory_version=version,
        hash=plan_hash(request, groups, version),
    )
    stayed = {group.index: group.from_spares for group in seated if group.member}
    return _Again(_replanned(previous, made, sized, stayed, all_seen=all_seen), all_seen)


def _metrics(offer: Capacity, request: Request, domains: Sequence[int], groups: Sequence[Group]) -> Metrics:
    """Return what a plan costs. Where spares are lacking its bound is that of a plan without any, which is true too."""
    if all(len(group.spares) == request.spares for group in groups):
        return metrics(offer, request, domains, groups)
    bare = metrics(offer, replace(request, spares=0), domains, [replace(group, spares=()) for group in groups])
    used = {group.place for group in groups}
    inside = sum(spare.gpus for group in groups for spare in group.spares if spare.place in used)
    elsewhere = sum(any(spare.place != group.place for spare in group.spares) for group in groups)
    told = replace(bare, stranded_gpus=bare.stranded_gpus - inside, spares_elsewhere=elsewhere)
    if request.policy is not Policy.LEAST_WASTE:
        return told
    least = max(0, bare.lower_bound - inside)
    return replace(told, lower_bound=least, gap=told.stranded_gpus - least)


def _left(offer: Capacity, untouched: Sequence[Member]) -> Capacity:
    """Return what the pods of some groups leave of an offer."""
    node_slots, slots, free = offer.node_slots.copy(), offer.slots.copy(), offer.free.copy()
    taken: Counter[str] = Counter()
    for member in untouched:
        taken.update(member.nodes)
    for domain in sorted({member.domain for member in untouched}):
        for number in offer.inventory.in_domain(domain):
            if pods := taken[offer.inventory.nodes[number].name]:
                node_slots[number] -= pods
                slots[domain, int(offer.node_kinds[number])] -= pods
                free[domain] -= pods * offer.pod_gpus
    return replace(offer, node_slots=node_slots, slots=slots, free=free)


def _choose(left: Capacity, request: Request, what: Remains) -> tuple[list[Chosen] | None, bool]:
    """Return what each domain takes, and whether all domains were looked at."""
    if len(request.ceilings) > 1:
        found = choose_again_of_scopes(left, request, what)
        return found.chosen, found.all_seen
    return choose_again(left, request, what), True


def _guarded(offer: Capacity, what: Remains, seated: Sequence[Seated], used: Counter[tuple[int, str]]) -> list[Guarded]:
    """Return all groups in the order of their numbers, with the spares that no pod took."""
    left = Counter(used)
    found = []
    stay = [Seated(member.index, member.domain, member.scope, member.nodes, member) for member in what.untouched]
    for group in sorted((*stay, *seated), key=lambda group: group.index):
        stood = []
        for spare in group.member.spares if group.member else ():
            if left[group.index, spare.node]:
                left[group.index, spare.node] -= 1
            else:
                stood.append(spare)
        changed = group.member is None or group.member.nodes != group.nodes
        found.append(Guarded(group, offer.inventory.places[group.domain], changed, tuple(stood)))
    return found


def _group(offer: Capacity, request: Request, group: Guarded) -> Group:
    names = [ceiling.scope for ceiling in request.ceilings] or [""]
    seated = group.seated
    shares = tuple(Share(name, pods * offer.pod_gpus) for name, pods in sorted(seated.nodes.items()))
    gpus = sum(share.gpus for share in shares)
    return Group(seated.index, gpus, group.place, names[seated.scope], shares, tuple(group.spares))


def _replanned(previous: Standing, made: Plan, sized: Request, stayed: dict[int, int], *, all_seen: bool) -> Replanned:
    before = {group.index: group for group in previous.groups}
    common = [(before[group.index], group) for group in made.groups if group.index in before]
    kept = tuple(new.index for old, new in common if set(old.nodes) == set(new.nodes))
    repaired = tuple(
        _repair(old, new, stayed[new.index]) for old, new in common if new.index in stayed and new.index not in kept
    )
    moved = tuple(new.index for _, new in common if new.index not in stayed and new.index not in kept)
    spares = sum(repair.spares for repair in repaired)
    said = [*reasons(previous, made, kept, repaired, moved), *lacking(made, sized.spares)]
    if not all_seen:
        said.append(NOT_ALL_SEEN)
    return Replanned(made, kept, repaired, moved, spares, tuple(said))


def _repair(old: Group, new: Group, spares: int) -> Repair:
    had, has = Counter(dict(old.nodes)), Counter(dict(new.nodes))
    lost, taken = (tuple(Share(name, gpus) for name, gpus in sorted(some.items())) for some in (had - has, has - had))
    return Repair(new.index, lost, taken, spares)


def _from_scratch(previous: Standing, made: Plan, *, all_seen: bool) -> Replanned:
    before = {group.index: group for group in previous.groups}
    kept = tuple(
        group.index
        for group in made.groups
        if group.index in before and set(group.nodes) == set(before[group.index].nodes)
    )
    moved = tuple(group.index for group in made.groups if group.index in before and group.index not in kept)
    said = reasons_from_scratch(made, len(previous.groups), len(moved))
    return Replanned(made, kept, (), moved, 0, said if all_seen else (*said, NOT_ALL_SEEN))
