"""Pods and spares after a loss dealt out as one, where nodes are in several scopes and dealing one by one got stuck."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.replanning.lacking import Guarded, most_spares, spares_of_each
from gkm.packing.replanning.standing import distance
from gkm.packing.values import Distance, Request, Spare

MAX_PAIRS = 1_000_000
"""Groups times nodes: more take longer than a person waits."""
_NEAREST_FIRST = {far: number for number, far in enumerate(Distance)}


def dealt_as_one(
    offer: Capacity, request: Request, untouched: frozenset[int], groups: Sequence[Guarded]
) -> list[Guarded] | None:
    """Return the groups with their spares, pods of the `untouched` where they are; None where there is no way.

    A spare that finds no slot is lacking only where its scope gives no more, or none is left for it.
    """
    nodes = offer.inventory.nodes
    if not any(len(kind) > 1 for kind in offer.kinds) or len(groups) * len(nodes) > MAX_PAIRS:
        return None
    deal = _deal(offer, request, untouched, groups)
    for number, group in enumerate(groups):
        if group.seated.index not in untouched and not deal.give((False, number), sum(group.seated.nodes.values())):
            return None
    counts = spares_of_each(request, groups, most_spares(offer, request, groups))
    if not all(deal.give((True, number), count) for number, count in enumerate(counts)):
        return None
    places = {node.name: node.place for node in nodes}
    moved: dict[int, Counter[str]] = {}
    for ((spare, number), name), count in sorted(deal.given.items()):
        if spare:
            far = distance(groups[number].place, places[name])
            groups[number].spares += [Spare(name, request.pod_gpus, places[name], far)] * count
        elif count:
            moved.setdefault(number, Counter())[name] += count
    return [_with_pods(group, moved.get(number)) for number, group in enumerate(groups)]


def _deal(
    offer: Capacity, request: Request, untouched: frozenset[int], groups: Sequence[Guarded]
) -> Deal[tuple[bool, int], str]:
    """Return what there is to deal. A want is whether it is for spares, and the group's place in the sequence."""
    nodes, numbers = offer.inventory.nodes, offer.inventory.numbers
    slots = {name: int(offer.node_slots[number]) for name, number in numbers.items()}
    for group in groups:
        if group.seated.index in untouched:
            for name, pods in group.seated.nodes.items():
                slots[name] -= pods

    def order(want: tuple[bool, int], name: str) -> tuple[object, ...] | None:
        spare, group = want[0], groups[want[1]]
        place, number = nodes[numbers[name]].place, numbers[name]
        kind = int(offer.node_kinds[number])
        far = _NEAREST_FIRST[distance(group.place, place)]
        if kind < 0 or group.seated.scope not in offer.kinds[kind] or (far and not (spare and request.may_spread)):
            return None
        return far, (name in group.seated.nodes) == spare, name

    return Deal(slots, order)


def _with_pods(group: Guarded, pods: Counter[str] | None) -> Guarded:
    if pods is None:
        return group
    member = group.seated.member
    stood = Counter(spare.node for spare in member.spares) if member else Counter[str]()
    came = pods - Counter(dict(member.nodes)) if member else pods
    return replace(group, seated=replace(group.seated, nodes=pods, from_spares=(came & stood).total()))
