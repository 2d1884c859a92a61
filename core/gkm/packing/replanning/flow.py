"""Pods and spares after a loss dealt out as one, where nodes are in several scopes and dealing one by one got stuck."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gkm.packing.domains.capacity import Capacity
from gkm.packing.nodes.dealing import Deal
from gkm.packing.replanning.spares import Guarded
from gkm.packing.values import Distance, Place, Request, Spare

MAX_PAIRS = 1_000_000
"""Groups times nodes: more take longer than a person waits."""
_DISTANCES = (Distance.NONE, Distance.REGION, Distance.CLUSTER, Distance.BLOCK, Distance.DOMAIN)


def dealt_as_one(
    offer: Capacity, request: Request, untouched: frozenset[int], groups: Sequence[Guarded]
) -> list[Guarded] | None:
    """Return the groups with their spares, pods of the `untouched` where they are; None where there is no way."""
    nodes = offer.inventory.nodes
    if not any(len(kind) > 1 for kind in offer.kinds) or len(groups) * len(nodes) > MAX_PAIRS:
        return None
    deal = _deal(offer, request, untouched, groups)
    for number, group in enumerate(groups):
        if group.seated.index not in untouched and not deal.give((False, number), sum(group.seated.nodes.values())):
            return None
    if not all(deal.give((True, number), request.spares) for number in range(len(groups))):
        return None
    places = {node.name: node.place for node in nodes}
    moved: dict[int, Counter[str]] = {}
    for ((spare, number), name), count in sorted(deal.given.items()):
        if spare:
            far = _DISTANCES[_shared(groups[number].place, places[name])]
            groups[number].spares += [Spare(name, request.pod_gpus, places[name], far)] * count
        elif count:
            moved.setdefault(number, Counter())[name] += count
    return [_with_pods(group, moved.get(number)) for number, group in enumerate(groups)]


def _deal(
    offer: Capacity, request: Request, untouched: frozenset[int], groups: Sequence[Guarded]
) -> Deal[tuple[bool, int], str]:
    """Return what there is to deal. A want is whether it is for spares, and the group's place in the sequence."""
    known = {node.name: (node.place, number) for number, node in enumerate(offer.inventory.nodes)}
    slots = {name: int(offer.node_slots[number]) for name, (_, number) in known.items()}
    for group in groups:
        if group.seated.index in untouched:
            for name, pods in group.seated.nodes.items():
                slots[name] -= pods

    def order(want: tuple[bool, int], name: str) -> tuple[object, ...] | None:
        spare, group = want[0], groups[want[1]]
        place, number = known[name]
        kind = int(offer.node_kinds[number])
        far = 4 - _shared(group.place, place)
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


def _shared(place: Place, other: Place) -> int:
    return next((level for level in range(4) if place[level] != other[level]), 4)
