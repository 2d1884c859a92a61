"""Which domains take the groups that are to be placed again, where the others stay (calculus.md, After a loss).

It is the tree knapsack of `cover` with two costs before those of the policy: groups that move, and pods that do. A
domain that untouched groups are in is used already, and so is its block: they cost nothing more.
"""

from dataclasses import dataclass, replace

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen, runs
from gkm.packing.domains.costs import Costs, Limits, costs
from gkm.packing.domains.cover import cover
from gkm.packing.domains.options import WHOLE, Option
from gkm.packing.domains.reading import read
from gkm.packing.replanning.standing import Member, Remains
from gkm.packing.values import Request


@dataclass(frozen=True, slots=True)
class Site:
    """What the groups that are to be placed find in a domain.

    `slots` are free of untouched pods. `needs` are the pods that must move, for each whole group that may stay here,
    the fewest first; `short_need` that of the short one, -1 if its home is elsewhere. `wanted` are the spares of
    untouched groups that should be here, the most first. `costs_domain` says that nobody untouched is here, so that the
    domain and its `gpus` count; `costs_block` the same of the block.
    """

    slots: int
    gpus: int
    needs: tuple[int, ...]
    short_need: int
    wanted: tuple[int, ...]
    costs_domain: bool
    costs_block: bool


@dataclass(frozen=True, slots=True)
class Weights:
    """Costs of the policy, and what comes before them: a pod that moves and, first of all, a group that does."""

    policy: Costs
    pod: int
    group: int


def choose_again(left: Capacity, request: Request, what: Remains) -> list[Chosen] | None:
    """Return what each domain takes of the groups that are to be placed; None if they do not fit.

    `left` is what untouched groups leave, with the room of all spares in it; `request` is of the size that is planned
    and has one scope at most. Where spares may be lacking only pods must fit: as many spares find no slot then
    wherever groups go, unless the run may not spread.

    Raises:
        TooLargeError: there are too many groups to be placed exactly.
    """
    if not _room(left, request, what):
        return None
    if not request.may_spread:
        return _one_domain(left, request, what)
    if not what.count:
        return []
    sites = sites_of(left, request, what)
    short = what.short >= 0
    smallest = request.last_pods if short else request.group_pods
    usable = np.flatnonzero(left.domain_slots >= smallest)
    weights = weights_of(left, request, what, len(usable), int(left.free[usable].sum()))
    known: dict[Site, list[Option]] = {}
    for domain in usable.tolist():
        site = sites[domain]
        if site not in known:
            known[site] = options_of(site, request, what, weights)
    offered = [known[sites[domain]] for domain in usable.tolist()]
    # A block that is used costs nothing: each of its domains is a block of its own, whose price its options give back.
    numbers = [
        int(left.inventory.blocks[domain]) if sites[domain].costs_block else -1 - domain for domain in usable.tolist()
    ]
    tables = cover(offered, runs(np.array(numbers, dtype=np.int64)), weights.policy, (what.count,), short=short)
    start = (1 if short else 0, what.count)
    if tables.least(start) >= weights.policy.impossible:
        return None
    return [Chosen(int(usable[domain]), groups, at) for domain, groups, at, _ in read(tables, [start])]


def weights_of(left: Capacity, request: Request, what: Remains, domains: int, gpus: int) -> Weights:
    """Return costs wide enough for any plan in so many domains with so many free GPUs."""
    limits = Limits(
        spares=request.groups if request.spares else 0,
        domains=min(what.count, domains),
        gpus=gpus,
        blocks=min(what.count, len(np.unique(left.inventory.blocks))),
    )
    base = costs(request.policy, limits)
    pod = base.impossible
    group = pod << (what.count * request.group_pods).bit_length()
    return Weights(replace(base, impossible=group << what.count.bit_length()), pod, group)


def sites_of(left: Capacity, request: Request, what: Remains) -> list[Site]:
    """Return what the groups find in each domain, in the order of the inventory."""
    domains = len(left.inventory.places)
    used = {member.domain for member in what.untouched}
    blocks = {int(left.inventory.blocks[domain]) for domain in used}
    needs: dict[int, list[int]] = {}
    short = (-1, -1)
    for member in what.homes:
        if member.index == what.short:
            short = member.domain, member.need
        else:
            needs.setdefault(member.domain, []).append(member.need)
    wanted: dict[int, list[int]] = {}
    for member in what.untouched:
        wanted.setdefault(member.domain, []).append(_wanted_here(left, request, member))
    slots, free, numbers = left.domain_slots.tolist(), left.free.tolist(), left.inventory.blocks.tolist()
    return [
        Site(
            slots[domain],
            free[domain],
            tuple(sorted(needs.get(domain, ()))),
            short[1] if short[0] == domain else -1,
            tuple(sorted((count for count in wanted.get(domain, ()) if count), reverse=True)),
            domain not in used,
            numbers[domain] not in blocks,
        )
        for domain in range(domains)
    ]


def options_of(site: Site, request: Request, what: Remains, weights: Weights) -> list[Option]:
    """Return what a domain can take: each number of groups that its slots hold, and the short one among them or not."""
    base = weights.policy.domain + site.gpus * weights.policy.gpu if site.costs_domain else 0
    base -= 0 if site.costs_block else weights.policy.block
    found: list[Option] = []
    for at in (WHOLE, 0) if what.short >= 0 else (WHOLE,):
        missing = request.group_pods - request.last_pods if at == 0 else 0
        most = min(what.count, (site.slots + missing) // request.group_pods)
        for groups in range(1, most + 1):
            away = _away(site, request, groups, missing) - _away(site, request, 0, 0)
            moved, pods = _moves(site, request, groups, short=at == 0)
            cost = base + moved * weights.group + pods * weights.pod + away * weights.policy.spare
            found.append(Option((groups,), at, cost))
    return found


def _moves(site: Site, request: Request, groups: int, *, short: bool) -> tuple[int, int]:
    """Return how many of the groups that a domain takes come from elsewhere, and how many pods move in all."""
    staying = site.needs[: groups - short]
    moved = groups - short - len(staying)
    pods = sum(staying) + moved * request.group_pods
    if short and site.short_need < 0:
        return moved + 1, pods + request.last_pods
    return moved, pods + (site.short_need if short else 0)


def _away(site: Site, request: Request, groups: int, missing: int) -> int:
    """Return of how many groups of a domain some spare cannot be there, those that are untouched included."""
    unit = request.group_pods + request.spares
    lacking = groups * unit - missing + sum(site.wanted) - site.slots
    if lacking <= 0:
        return 0
    if lacking <= groups * request.spares:
        return -(-lacking // request.spares)
    lacking -= groups * request.spares
    for number, count in enumerate(site.wanted, 1):
        lacking -= count
        if lacking <= 0:
            return groups + number
    raise AssertionError("spares of a domain are more than what its pods leave no room for")


def _wanted_here(left: Capacity, request: Request, member: Member) -> int:
    place = left.inventory.places[member.domain]
    return request.spares - sum(spare.place != place for spare in member.spares)


def _room(left: Capacity, request: Request, what: Remains) -> bool:
    """Return whether there is room for all pods and spares together, and the scope gives them."""
    pods = request.gpus // request.pod_gpus
    spares = 0 if what.lenient else request.groups * request.spares
    if any(pods + spares > ceiling.gpus // request.pod_gpus for ceiling in request.ceilings):
        return False
    return int(left.domain_slots.sum()) >= pods + spares - sum(member.pods for member in what.untouched)


def _one_domain(left: Capacity, request: Request, what: Remains) -> list[Chosen] | None:
    """Return the domain that takes the whole run, where those that are not touched all are in it."""
    pods = request.gpus // request.pod_gpus - sum(member.pods for member in what.untouched)
    needed = pods + request.groups * request.spares
    fitting = np.flatnonzero(left.domain_slots >= (pods if what.lenient else needed)).tolist()
    used = {member.domain for member in what.untouched}
    fitting = [domain for domain in fitting if used <= {domain}]
    if not fitting:
        return None
    sites = sites_of(left, request, what)
    short = what.short >= 0

    def order(domain: int) -> tuple[int, ...]:
        lacking = max(0, needed - sites[domain].slots)
        return *_moves(sites[domain], request, what.count, short=short), lacking, sites[domain].gpus, domain

    if not what.count:
        return []
    return [Chosen(min(fitting, key=order), (what.count,), 0 if short else WHOLE)]
