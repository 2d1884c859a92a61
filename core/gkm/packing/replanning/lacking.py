"""How many spares each group has after a loss: all it should, or as many as there is room for (calculus.md)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.replanning.seating import Seated
from gkm.packing.values import Location, Request, Spare


@dataclass(slots=True)
class Guarded:
    """A group where it is now, and the spares that stood ready for it and those that do.

    `changed` says that pods of it moved: then a spare may be beside it that was apart before.
    """

    seated: Seated
    place: Location
    changed: bool
    stood: tuple[Spare, ...]
    spares: list[Spare] = field(default_factory=list)

    def here(self) -> list[Spare]:
        """Return the spares that stood in the domain of the group."""
        return [spare for spare in self.stood if spare.place == self.place]


def most_spares(offer: Capacity, request: Request, groups: Sequence[Guarded]) -> Counter[int]:
    """Return for how many spares of each scope there is room beside all pods, and as its ceiling allows."""
    pods: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for group in groups:
        pods[group.seated.scope] += sum(group.seated.nodes.values())
        most[group.seated.scope] += request.spares
    for scope, ceiling in enumerate(request.ceilings):
        most[scope] = min(most[scope], max(0, ceiling.gpus // request.pod_gpus - pods[scope]))
    near = slice(None) if request.may_spread else slice(groups[0].seated.domain, groups[0].seated.domain + 1)
    slots = Counter(dict(zip(offer.kinds, offer.slots[near].sum(axis=0).tolist(), strict=True)))
    if len(pods) == 1:
        (scope,) = pods
        room = sum(count for kind, count in slots.items() if scope in kind) - pods[scope]
        return Counter({scope: min(most[scope], room)})
    for group in groups:
        for name, count in group.seated.nodes.items():
            slots[offer.kinds[int(offer.node_kinds[offer.inventory.numbers[name]])]] -= count
    deal: Deal[int, frozenset[int]] = Deal(
        slots, lambda scope, kind: (len(kind), sorted(kind)) if scope in kind else None
    )
    for spare in (Counter(group.seated.scope for group in groups for _ in group.stood), most):
        for scope in sorted(most):
            already = sum(count for (want, _), count in deal.given.items() if want == scope)
            deal.give(scope, max(0, min(spare[scope], most[scope]) - already))
    found: Counter[int] = Counter()
    for (scope, _), count in deal.given.items():
        found[scope] += count
    return found


def spares_of_each(request: Request, groups: Sequence[Guarded], most: Counter[int]) -> list[int]:
    """Return how many spares each group can have where they are as many by scope: those that stood come first."""
    stood = Counter[int]()
    here = []
    for group in groups:
        count = min(len(group.stood), request.spares, most[group.seated.scope] - stood[group.seated.scope])
        stood[group.seated.scope] += count
        here.append(count)
    return filled(groups, here, [request.spares] * len(groups), most)


def limits(request: Request, groups: Sequence[Guarded], most: Counter[int]) -> list[int]:
    """Return the most spares of each group: all, unless a ceiling keeps some from it."""
    if sum(most.values()) == request.spares * len(groups):
        return [request.spares] * len(groups)
    pods: Counter[int] = Counter()
    for group in groups:
        pods[group.seated.scope] += sum(group.seated.nodes.values())
    given = Counter(
        {scope: ceiling.gpus // request.pod_gpus - pods[scope] for scope, ceiling in enumerate(request.ceilings)}
    )
    fair = spares_of_each(request, groups, given) if request.ceilings else []
    asked = Counter(group.seated.scope for group in groups)
    return [
        fair[number] if fair and given[scope] < asked[scope] * request.spares else request.spares
        for number, scope in enumerate(group.seated.scope for group in groups)
    ]


def filled(groups: Sequence[Guarded], here: Sequence[int], limits: Sequence[int], most: Counter[int]) -> list[int]:
    """Return counts of spares raised to their limits, as far as their scopes give so many.

    Who has the fewest comes first, then who has the lowest number.
    """
    left = Counter(most)
    for group, count in zip(groups, here, strict=True):
        left[group.seated.scope] -= count
    found = list(here)
    waiting = [(count, number) for number, count in enumerate(here)]
    heapify(waiting)
    while waiting:
        count, number = heappop(waiting)
        if count < limits[number] and left[groups[number].seated.scope] > 0:
            left[groups[number].seated.scope] -= 1
            found[number] += 1
            heappush(waiting, (count + 1, number))
    return found
