"""Which domains take the groups that are to be placed again, where several scopes pay (calculus.md, After a loss).

As in `overlapping`, a state is groups by scope and, for each choice of scopes, what the spares of these find no slot
for. Here all spares may leave: that they stay costs less, and whether they find any slot is what decides.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.capacity import Capacity
from gkm.packing.domains.choosing import Chosen, runs
from gkm.packing.domains.cover import Cell, TooLargeError
from gkm.packing.domains.mixtures import Scopes, subsets
from gkm.packing.domains.options import WHOLE, Option
from gkm.packing.domains.overlapping import states
from gkm.packing.domains.reading_overlapping import read_states
from gkm.packing.replanning.choosing import Weights, weights_of
from gkm.packing.replanning.standing import Remains
from gkm.packing.values import Request

MAX_OTHERS = 24
"""Domains that are looked at besides those that the run is in, where all of them are too many."""


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    left: Capacity
    request: Request
    what: Remains
    weights: Weights
    choices: Sequence[Scopes]

    @property
    def scopes(self) -> range:
        return range(len(self.request.ceilings))

    @property
    def missing(self) -> int:
        return self.request.group_pods - self.request.last_pods


class Choice(NamedTuple):
    """What each domain takes, None if nothing was found; how many groups move; and whether all domains were seen."""

    chosen: list[Chosen] | None
    moved: int
    all_seen: bool = True


def choose_again_of_scopes(left: Capacity, request: Request, what: Remains) -> Choice:
    """Return what each domain takes of the groups that are to be placed.

    Where the domains are too many to be gone through, those of the run are and the roomiest others: the plan is then
    as good as can be with these. Where spares may be lacking, groups moved come first; then every group has as many
    spares as all of them can have.

    Raises:
        TooLargeError: these are too many as well.
    """
    if not what.lenient:
        return _choice(left, request, what)
    bare = _choice(left, replace(request, spares=0), what)
    if bare.chosen is None or not request.spares:
        return bare
    # Fewer spares fit wherever more do, and move no more groups.
    most = min(request.spares, int(left.domain_slots.sum()))
    tried: dict[int, Choice] = {0: bare}

    def as_few_moves(spares: int) -> bool:
        try:
            tried[spares] = found = _choice(left, replace(request, spares=spares), what)
        except TooLargeError:
            return False
        return found.chosen is not None and found.moved == bare.moved

    if not as_few_moves(most):
        most = bisect_left(range(most), 1, lo=1, key=lambda spares: not as_few_moves(spares)) - 1
    return tried[most]


def _choice(left: Capacity, request: Request, what: Remains) -> Choice:
    scopes = range(len(request.ceilings))
    overlap = any(len(kind) > 1 for kind in left.kinds)
    choices = list(subsets(scopes)) if overlap else [frozenset({scope}) for scope in scopes]
    smallest = request.last_pods if what.short >= 0 else request.group_pods
    domains = np.flatnonzero(left.domain_slots >= smallest).tolist() if what.count else []
    weights = weights_of(left, request, what, len(domains), int(left.free[domains].sum()))
    task = _Task(left, request, what, weights, choices)
    if not request.may_spread:
        best = _one_domain(task)
        return Choice(None, 0) if best is None else Choice(best[1], best[0])
    all_seen = True
    try:
        found = _cheapest(task, domains, None)
    except TooLargeError:
        all_seen = False
        ours = {member.domain for member in (*what.untouched, *what.homes)}
        others = sorted(set(domains) - ours, key=lambda domain: (-int(left.domain_slots[domain]), domain))
        found = _cheapest(task, sorted({*others[:MAX_OTHERS], *(ours & set(domains))}), None)
    return Choice(None, 0, all_seen) if found is None else Choice(found[1], int(found[0] // weights.group), all_seen)


def _one_domain(task: _Task) -> tuple[int, list[Chosen]] | None:
    """Return how many groups move to the one domain that takes the run, and what it takes."""
    used = {member.domain for member in task.what.untouched}
    best: tuple[float, int, int, list[Chosen]] | None = None
    for domain in range(len(task.left.inventory.places)):
        if used <= {domain} and (found := _cheapest(task, [domain] if task.what.count else [], domain)) is not None:
            here = (found[0] // task.weights.pod, int(task.left.free[domain]), domain, found[1])
            best = here if best is None or here[:3] < best[:3] else best
    return None if best is None else (int(best[0] * task.weights.pod // task.weights.group), best[3])


def _cheapest(task: _Task, domains: list[int], alone: int | None) -> tuple[float, list[Chosen]] | None:
    """Return the least cost and what each domain takes. With `alone` all spares must lie in that domain."""
    blocks = task.left.inventory.blocks
    used = {member.domain for member in task.what.untouched}
    paid = {int(blocks[domain]) for domain in used}
    offered = [list(_options(task, domain, used, paid)) for domain in domains]
    numbers = [-1 - domain if int(blocks[domain]) in paid else int(blocks[domain]) for domain in domains]
    nothing = (0,) * (1 + len(task.scopes) + len(task.choices))
    tables = states(offered, runs(np.array(numbers, dtype=np.int64)), task.weights.policy, task.what.count, nothing)
    slots = [
        int(offers.sum() if alone is None else offers[alone])
        for offers in (task.left.scope_slots(some) for some in task.choices)
    ]
    allowed = [cell for cell in tables.unused[0] if _allowed(task, cell, slots)]
    if not allowed:
        return None
    least = min(tables.unused[0][cell] for cell in allowed)
    starts = [cell for cell in allowed if tables.unused[0][cell] == least]
    return least, [Chosen(domains[taken.domain], *taken[1:3]) for taken in read_states(tables, starts)]


def _options(task: _Task, domain: int, used: set[int], paid: set[int]) -> Iterator[Option]:
    """Yield every mixture of groups that a domain can take."""
    left, request, what = task.left, task.request, task.what
    slots = dict(zip(left.kinds, left.slots[domain].tolist(), strict=True))
    room = {some: sum(count for kind, count in slots.items() if kind & some) for some in subsets(task.scopes)}
    room[frozenset()] = 0
    price = task.weights.policy
    base = price.domain + int(left.free[domain]) * price.gpu if domain not in used else 0
    base -= price.block if int(left.inventory.blocks[domain]) in paid else 0
    wanted = [
        sum(request.spares for member in what.untouched if (member.domain, member.scope) == (domain, scope))
        for scope in task.scopes
    ]
    before = _away(request, wanted, room)
    most = [min(what.count, (room[frozenset({scope})] + task.missing) // request.group_pods) for scope in task.scopes]
    for groups in product(*(range(count + 1) for count in most)):
        if not 0 < sum(groups) <= what.count:
            continue
        for short in (WHOLE, *task.scopes) if what.short >= 0 else (WHOLE,):
            if short != WHOLE and not groups[short]:
                continue
            asked = [
                count * request.group_pods - (task.missing if scope == short else 0)
                for scope, count in enumerate(groups)
            ]
            if any(sum(asked[scope] for scope in some) > count for some, count in room.items()):
                continue
            moved, pods = _moves(task, domain, groups, short)
            spares = [
                count + pods_here + number * request.spares
                for count, pods_here, number in zip(wanted, asked, groups, strict=True)
            ]
            cost = base + moved * task.weights.group + pods * task.weights.pod
            cost += max(0, _away(request, spares, room) - before) * price.spare
            yield Option(groups, short, cost, tuple(_needs(task, groups, asked, room)))


def _moves(task: _Task, domain: int, groups: Sequence[int], short: int) -> tuple[int, int]:
    moved = pods = 0
    for scope, count in enumerate(groups):
        here = [member for member in task.what.homes if (member.domain, member.scope) == (domain, scope)]
        whole = count - (scope == short)
        needs = sorted(member.need for member in here if member.index != task.what.short)[:whole]
        moved += whole - len(needs)
        pods += sum(needs) + (whole - len(needs)) * task.request.group_pods
        if scope == short:
            own = [member.need for member in here if member.index == task.what.short]
            moved += not own
            pods += own[0] if own else task.request.last_pods
    return moved, pods


def _away(request: Request, asked: Sequence[int], room: Mapping[Scopes, int]) -> int:
    """Return of how many groups spares must leave, at least, where scopes ask for so many slots of a domain."""
    lacking = max(sum(asked[scope] for scope in some) - count for some, count in room.items())
    return -(-max(0, lacking) // request.spares) if request.spares else 0


def _needs(task: _Task, groups: Sequence[int], asked: Sequence[int], room: Mapping[Scopes, int]) -> Iterator[int]:
    """Yield what a domain asks of all slots of some scopes: pods beyond its other slots, and all the spares."""
    for leaving in task.choices:
        beyond = max(sum(asked[scope] for scope in some) - room[leaving | some] for some in room)
        yield beyond + room[leaving] + task.request.spares * sum(groups[scope] for scope in leaving)


def _allowed(task: _Task, cell: Cell, slots: Sequence[int]) -> bool:
    """Return whether a state is all that is to be placed, within the ceilings, and all spares find slots."""
    request, what = task.request, task.what
    groups, needs = cell[1 : 1 + len(task.scopes)], cell[1 + len(task.scopes) :]
    if sum(groups) != what.count or bool(cell[0]) != (what.short >= 0):
        return False
    standing = [[member.pods for member in what.untouched if member.scope == scope] for scope in task.scopes]
    for scope, ceiling in enumerate(request.ceilings):
        pods = groups[scope] * request.group_pods - (task.missing if cell[0] == 1 + scope else 0)
        pods += sum(standing[scope]) + (groups[scope] + len(standing[scope])) * request.spares
        if pods > ceiling.gpus // request.pod_gpus:
            return False
    return all(
        need + request.spares * sum(len(standing[scope]) for scope in some) <= count
        for need, count, some in zip(needs, slots, task.choices, strict=True)
    )
