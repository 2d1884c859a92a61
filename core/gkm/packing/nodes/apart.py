"""Moves spares off the nodes of their own group where several scopes laid out a domain, each for itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from gkm.packing.domains.capacity import Capacity
from gkm.packing.values import Group, Location, Request


@dataclass(slots=True)
class _Spare:
    group: int
    scope: int
    place: Location
    node: str


def set_apart(capacity: Capacity, request: Request, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the groups with as few spares beside their group as moving and swapping them in their domains gives.

    No spare changes its domain, and none leaves its scope.
    """
    names = [ceiling.scope for ceiling in request.ceilings]
    spares = [
        _Spare(number, names.index(group.scope), spare.place, spare.node)
        for number, group in enumerate(groups)
        for spare in group.spares
    ]
    own = [{share.node for share in group.nodes} for group in groups]
    if not any(spare.node in own[spare.group] for spare in spares):
        return tuple(groups)
    scopes, left = _nodes(capacity, groups)
    # Every move takes a spare off its group and puts none beside another, so this ends.
    while _moved(spares, own, scopes, left) or _swapped(spares, own, scopes):
        pass
    nodes = iter(spare.node for spare in spares)
    return tuple(
        replace(group, spares=tuple(replace(spare, node=next(nodes)) for spare in group.spares)) for group in groups
    )


def _nodes(
    capacity: Capacity, groups: Sequence[Group]
) -> tuple[dict[str, frozenset[int]], dict[Location, dict[str, int]]]:
    """Return the scopes of every node that can be used, and the slots left by place and node."""
    scopes: dict[str, frozenset[int]] = {}
    left: dict[Location, dict[str, int]] = {}
    kinds, slots = capacity.node_kinds.tolist(), capacity.node_slots.tolist()
    for node, kind, count in zip(capacity.inventory.nodes, kinds, slots, strict=True):
        if kind >= 0:
            scopes[node.name] = capacity.kinds[kind]
            left.setdefault(node.place, {})[node.name] = count
    for group in groups:
        for name, gpus in group.nodes:
            left[group.place][name] -= gpus // capacity.pod_gpus
        for spare in group.spares:
            left[spare.place][spare.node] -= 1
    return scopes, left


def _moved(
    spares: Sequence[_Spare],
    own: Sequence[set[str]],
    scopes: dict[str, frozenset[int]],
    left: dict[Location, dict[str, int]],
) -> bool:
    for spare in spares:
        if spare.node in own[spare.group]:
            here = left[spare.place]
            for name, slots in here.items():
                if slots and spare.scope in scopes[name] and name not in own[spare.group]:
                    here[spare.node] += 1
                    here[name] -= 1
                    spare.node = name
                    return True
    return False


def _swapped(spares: Sequence[_Spare], own: Sequence[set[str]], scopes: dict[str, frozenset[int]]) -> bool:
    sharing = [spare for spare in spares if spare.node in own[spare.group]]
    for one, other in product(sharing, spares):
        if one.place == other.place and one.scope in scopes[other.node] and other.scope in scopes[one.node]:
            now = 1 + (other.node in own[other.group])
            if (other.node in own[one.group]) + (one.node in own[other.group]) < now:
                one.node, other.node = other.node, one.node
                return True
    return False
