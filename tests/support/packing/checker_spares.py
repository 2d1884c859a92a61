"""What a plan says of its spares, worked out again: how many, how far, and whether any could be better off.

Better off is, precisely:
- nearer: a slot is left at a nearer level than the spare's own, on a node of the group's scope; or, in a run without
  scopes, fewer spares stay within their domain (block, cluster, region) than all its slots and all its spares allow;
- apart: the spare shares a node with its group, and another node of its domain and scope has a slot left, or runs a
  spare of another group that could change places with it so that one node less is shared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from gkm.packing.values import Distance, Group, Location, Node, Request, Spare

Room = dict[tuple[str, ...], list[Node]]
"""Nodes with a slot left, by what they lie in: domain, block, cluster, region, everything."""

LEVELS = (Distance.DOMAIN, Distance.BLOCK, Distance.CLUSTER, Distance.REGION, Distance.NONE)


def within(place: Location, distance: Distance) -> tuple[str, ...]:
    """Return what two places share that are no further than this from each other."""
    return tuple(place)[: 4 - LEVELS.index(distance)]


def distance_between(one: Location, other: Location) -> Distance:
    """Return the nearest level that both lie in."""
    return next(level for level in LEVELS if within(one, level) == within(other, level))


def false_spares(
    nodes: Sequence[Node], request: Request, groups: Sequence[Group], *, may_lack: bool = False
) -> Iterator[str]:
    """Yield why spares cannot be what they say. Every node of the groups must be in the inventory."""
    known = {node.name: node for node in nodes}
    for group in groups:
        count = len(group.spares)
        if count > request.spares or (count < request.spares and not may_lack):
            yield f"group {group.index} has {count} spares, not {request.spares}"
        for spare in group.spares:
            yield from _truth(known, request, group, spare)


def better_spares(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Yield which spares could be better off. Every node of the groups must be in the inventory."""
    known = {node.name: node for node in nodes}
    room = _room(nodes, request, groups)
    for group in groups:
        for spare in group.spares:
            yield from _nearer(known, room, group, spare)
    if not request.ceilings:
        yield from _most_stay(nodes, request, groups)
    yield from _apart(known, room, groups)


def _room(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Room:
    """Return the nodes that have a slot left beside the groups."""
    free = {node.name: node.free for node in nodes}
    for group in groups:
        for name, gpus in [*group.nodes, *((spare.node, spare.gpus) for spare in group.spares)]:
            free[name] -= gpus
    found: Room = {}
    for node in nodes:
        if free[node.name] >= request.pod_gpus:
            for level in LEVELS:
                found.setdefault(within(node.place, level), []).append(node)
    return found


def _truth(known: dict[str, Node], request: Request, group: Group, spare: Spare) -> Iterator[str]:
    """Say what a spare says that is not so."""
    named = f"a spare of group {group.index} on {spare.node}"
    if spare.gpus != request.pod_gpus:
        yield f"{named} takes {spare.gpus} GPUs, not those of a pod"
    if spare.place != known[spare.node].place:
        yield f"{named} says it lies in {spare.place}, and its node lies in {known[spare.node].place}"
    if spare.distance is not _with_racks(known, group.place, known[spare.node].place):
        yield f"{named} says {spare.distance}, which is not how near it is"
    if group.scope and group.scope not in known[spare.node].scopes:
        yield f"{named} is not in the scope of its group, {group.scope}"


def _with_racks(known: dict[str, Node], one: Location, other: Location) -> Distance:
    """Return the nearest level of two places, racks included: a domain is in one if all of its nodes are."""
    found = distance_between(one, other)
    racks = [{node.rack for node in known.values() if node.place == place} for place in (one, other)]
    same = racks[0] == racks[1] and len(racks[0]) == 1 and "" not in racks[0]
    return Distance.RACK if same and one[:2] == other[:2] and found is not Distance.DOMAIN else found


def _takes(node: Node, group: Group) -> bool:
    return not group.scope or group.scope in node.scopes


def _nearer(known: dict[str, Node], room: Room, group: Group, spare: Spare) -> Iterator[str]:
    far = LEVELS.index(distance_between(group.place, known[spare.node].place))
    if far:
        better = (node for node in room.get(within(group.place, LEVELS[far - 1]), ()) if _takes(node, group))
        for node in better:
            yield f"a spare of group {group.index} is on {spare.node}, and {node.name} is nearer and has a slot left"
            return


def _most_stay(nodes: Sequence[Node], request: Request, groups: Sequence[Group]) -> Iterator[str]:
    """Say at which level fewer spares stay than could, the groups being where they are."""
    for level in LEVELS[:-1]:
        slots: Counter[tuple[str, ...]] = Counter()
        wanted: Counter[tuple[str, ...]] = Counter()
        for node in nodes:
            slots[within(node.place, level)] += node.free // request.pod_gpus
        stay = 0
        for group in groups:
            unit = within(group.place, level)
            slots[unit] -= group.gpus // request.pod_gpus
            wanted[unit] += request.spares
            stay += sum(within(spare.place, level) == unit for spare in group.spares)
        most = sum(min(wanted[unit], slots[unit]) for unit in wanted)
        if stay != most:
            yield f"{stay} spares stay within their {level}, and {most} could"


def _apart(known: dict[str, Node], room: Room, groups: Sequence[Group]) -> Iterator[str]:
    """Say which spare shares a node with the group it protects for no reason."""
    placed = [(group, spare) for group in groups for spare in group.spares]
    on = {group.index: {share.node for share in group.nodes} for group in groups}
    sharing = [(group, spare) for group, spare in placed if spare.node in on[group.index]]
    for group, spare in sharing:
        for node in room.get(tuple(group.place), ()):
            if _takes(node, group) and node.name not in on[group.index]:
                yield f"a spare of group {group.index} shares node {spare.node}, and {node.name} has a slot left"
                break
    for (group, spare), (peer, theirs) in product(sharing, placed):
        shared = 1 + (theirs.node in on[peer.index])
        swapped = (theirs.node in on[group.index]) + (spare.node in on[peer.index])
        near = known[spare.node].place == known[theirs.node].place
        if near and swapped < shared and _takes(known[theirs.node], group) and _takes(known[spare.node], peer):
            yield f"spares of groups {group.index} and {peer.index} share nodes with them, and could change places"
            return
