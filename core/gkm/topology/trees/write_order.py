"""Order the writes that turn the HyperNodes on the server into the wanted ones: docs/design/hypernodes.md. Pure.

A step leads from one valid tree to the next. Domains shrink to what both trees have, the widest first; then they grow
to what the next tree has, the closest first. So after each write the HyperNodes are a forest with one parent each,
rising tiers, existing children and at least one member, and each domain has nodes of its old content only, or of its
new content only.

Nodes that a step moves are out of domains until it ends. So a step moves a sixteenth of all nodes, or more only where
they belong together: else a domain would have old and new content, or two parents.

HyperNodes that the API server refuses to change are there all the same. So their nodes are in no other domain, their
children still exist, and they remain in a domain: otherwise a node would be in two domains, and a healthy rack in no
domain.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Literal, NamedTuple

from gkm.topology.hypernodes import HyperNode, Member

_SHARE = 16
_DEEPEST = 32

Tree = Mapping[str, HyperNode]


class Write(NamedTuple):
    """One write to the API server: the complete new HyperNode, or the HyperNode to delete."""

    action: Literal["create", "update", "delete"]
    hypernode: HyperNode


class _Place(NamedTuple):
    """A domain around a node, with its tier, and its parent or ""."""

    domain: str
    tier: int
    parent: str


_Move = tuple[tuple[_Place, ...], tuple[_Place, ...]]
"""The domains around a node before and after, the closest first."""


def ordered_writes(current: Tree, wanted: Tree) -> list[Write]:
    """Return the writes in order that turn `current` into `wanted`; after each write the tree is valid.

    An invalid `current`, which only others can make, is repaired first.
    """
    if current == wanted:
        return []  # each change of a status ends here
    trees = [current, *_steps(_repaired(current, wanted), wanted)]
    return [write for here, there in pairwise(trees) if here != there for write in _shrink_then_grow(here, there)]


def writes_around(
    current: Tree, wanted: Tree, refused: AbstractSet[str], adopted: AbstractSet[str] = frozenset()
) -> list[Write]:
    """Return the writes for the wanted HyperNodes; the `refused` HyperNodes of `current` are left unchanged.

    The `adopted` HyperNodes have a parent of another source.
    """
    refused &= current.keys()
    if not refused:
        return ordered_writes(current, wanted)
    here = _repaired(current, {name: current[name] for name in refused})
    lost = refused - here.keys()
    wanted = {name: each for name, each in wanted.items() if name not in lost}
    stays = {name: here[name] for name in refused - lost}
    unsteady = _unsteady_children(stays, here, _around(stays, here, wanted, adopted))
    around = _around(stays | {name: here[name] for name in unsteady}, here, wanted, adopted)
    # Others may have added members to what is refused; that cannot be repaired now.
    now = {name: here[name] if name in refused else each for name, each in current.items() if name not in lost}
    return ordered_writes(now, around)


def _shrink_then_grow(here: Tree, there: Tree) -> Iterator[Write]:
    shrunk = _shrunk(here, there)
    for each in reversed(_closest_first(here)):
        if each.name not in shrunk:
            yield Write("delete", each)
        elif shrunk[each.name] != each:
            yield Write("update", shrunk[each.name])
    for each in _closest_first(there):
        if each.name not in shrunk:
            yield Write("create", each)
        elif shrunk[each.name] != each:
            yield Write("update", each)


def _shrunk(here: Tree, there: Tree) -> dict[str, HyperNode]:
    """Return the domains with the members that they have in both trees, and with the higher of their two tiers."""
    found: dict[str, HyperNode] = {}
    for each in _closest_first(here):
        later = there.get(each.name)
        if later is None:
            continue
        common = frozenset(later.members)
        members = [one for one in each.members if one in common and (one.kind == "Node" or one.name in found)]
        if len(members) == len(each.members) and later.tier <= each.tier:
            found[each.name] = each
        elif members:
            found[each.name] = _with(later if later.tier >= each.tier else each, members)
    return found


def _steps(old: Tree, new: Tree) -> Iterator[Tree]:
    """Yield the trees on the way. Tiers rise before nodes move, and fall after that."""
    raised, lowered = _raised(old, new), _raised(new, old)
    yield old
    yield raised
    moves = _moves(raised, lowered)
    moved, waiting = set[Member](), set[Member]().union(*moves.values())
    for batch in _batches(moves, max(_nodes(old), _nodes(new)) // _SHARE):
        moved |= batch
        waiting -= batch
        if waiting:
            yield _union(_without(raised, moved), _without(lowered, waiting))
    yield lowered
    yield new


def _raised(tree: Tree, other: Tree) -> dict[str, HyperNode]:
    """Return a tree with the tiers of the other tree where these are higher, and below those of the parents."""
    parents = _parents(tree)
    found: dict[str, HyperNode] = {}
    for each in reversed(_closest_first(tree)):
        later = other.get(each.name, each)
        parent = found.get(parents.get(each.name, ""))
        rises = later.tier > each.tier and (parent is None or later.tier < parent.tier)
        found[each.name] = HyperNode(each.name, later.tier_name, each.members, later.tier) if rises else each
    return found


def _moves(old: Tree, new: Tree) -> dict[_Move, set[Member]]:
    """Return the nodes around which the domains of the two trees differ, in the order of the new tree."""
    before, after = _places(old), _places(new)
    every = old.keys() | new.keys()
    names = [name for name in every if old.get(name) != new.get(name) or before.get(name) != after.get(name)]
    old_owner = _owners(old[name] for name in names if name in old)
    new_owner = _owners(new[name] for name in names if name in new)
    moves: dict[_Move, set[Member]] = {}
    for node in old_owner.keys() | new_owner.keys():
        move = before.get(old_owner.get(node, ""), ()), after.get(new_owner.get(node, ""), ())
        if node.kind == "Node" and move[0] != move[1]:
            moves.setdefault(move, set()).add(node)
    return {move: moves[move] for move in sorted(moves, key=lambda move: (move[1][::-1], move[0][::-1]))}


def _places(tree: Tree) -> dict[str, tuple[_Place, ...]]:
    """Return the domains around the nodes of each one."""
    parents = _parents(tree)
    found: dict[str, tuple[_Place, ...]] = {}
    for each in reversed(_closest_first(tree)):
        parent = parents.get(each.name, "")
        found[each.name] = (_Place(each.name, each.tier, parent), *found.get(parent, ()))
    return found


def _batches(moves: Mapping[_Move, set[Member]], nodes: int) -> Iterator[set[Member]]:
    """Yield the nodes to move at once: of one unit, or of several until so many nodes are out of domains."""
    batch, out = set[Member](), 0
    for unit in _units(moves):
        batch.update(*(moves[move] for move in unit))
        out += sum(len(moves[move]) for move in unit if _leaves(*move))
        if out >= max(1, nodes):
            yield batch
            batch, out = set(), 0
    if batch:
        yield batch


def _leaves(before: Iterable[_Place], after: Iterable[_Place]) -> bool:
    """Return whether nodes are out of domains meanwhile: not if they only come, go, or get or lose the widest ones."""
    return any(old.domain != new.domain for old, new in zip(before, after, strict=False))


def _units(moves: Iterable[_Move]) -> Iterator[list[_Move]]:
    """Yield the moves that belong together.

    These units leave or enter a domain that others enter or leave, or belong to the nodes of a domain whose tier or
    parent changes.
    """
    domains = {move: (_domains(move[0]), _domains(move[1])) for move in moves}
    left = {name for before, after in domains.values() for name in before - after}
    entered = {name for before, after in domains.values() for name in after - before}
    old, new = ({place for move in domains for place in move[side]} for side in (0, 1))
    changed = _domains(old - new) & _domains(new - old)
    ties = {
        move: (before ^ after) & left & entered | (before | after) & changed
        for move, (before, after) in domains.items()
    }
    yield from _tied(ties)


def _tied(ties: Mapping[_Move, AbstractSet[str]]) -> Iterator[list[_Move]]:
    """Yield the moves that have a domain in common, directly or through others."""
    by_tie: dict[str, list[_Move]] = {}
    for move, names in ties.items():
        for name in names:
            by_tie.setdefault(name, []).append(move)
    rest = dict(ties)
    for first in ties:
        unit, queue = list[_Move](), [first]
        while queue:
            move = queue.pop()
            if move in rest:
                unit.append(move)
                queue += (other for name in rest.pop(move) for other in by_tie.pop(name, ()))
        if unit:
            yield unit


def _repaired(current: Tree, wanted: Tree) -> Tree:
    """Return a tree without the members that have another parent, do not exist, or have too high a tier.

    It is not deeper than a tree of GKM can be.
    """
    bad = _bad_edges(current)
    if not bad and len(_owners(current.values())) == sum(len(each.members) for each in current.values()):
        return current
    good = {name: {one for one in each.members if (name, one) not in bad} for name, each in current.items()}
    owner = {one: name for name in sorted(good, reverse=True) for one in good[name]}
    for name in sorted(good.keys() & wanted.keys()):
        owner |= dict.fromkeys(good[name].intersection(wanted[name].members), name)
    own = {name: _with(each, {one for one in good[name] if owner[one] == name}) for name, each in current.items()}
    return _without(own, frozenset())


def _bad_edges(current: Tree) -> set[tuple[str, Member]]:
    height: dict[str, int] = {}
    bad: set[tuple[str, Member]] = set()
    for each in _closest_first(current):
        below = [0]
        for one in each.members:
            if one.kind == "HyperNode":
                rises = one.name in height and current[one.name].tier < each.tier
                if rises and height[one.name] < _DEEPEST:
                    below.append(height[one.name])
                else:
                    bad.add((each.name, one))
        height[each.name] = 1 + max(below)
    return bad


def _around(stays: Tree, here: Tree, wanted: Tree, adopted: AbstractSet[str]) -> dict[str, HyperNode]:
    """Return what stays, and the wanted HyperNodes with the members that are left to them."""
    taken = {member for each in stays.values() for member in each.members}
    free = {name: each for name, each in wanted.items() if name not in stays}
    added: dict[str, set[Member]] = {}
    for child, parents in _possible_parents(stays, here, wanted):
        parent = next((one for one in parents if one in free and free[one].tier > stays[child].tier), None)
        member = Member("HyperNode", child)
        if parent is not None and member not in taken and child not in adopted:
            added.setdefault(parent, set()).add(member)
    found = dict(stays)
    for each in _closest_first(free):
        rest = {one for one in each.members if one not in taken and (one.kind == "Node" or one.name in found)}
        members = added.get(each.name, set()).union(one for one in rest if one.name not in stays)
        if members:
            found[each.name] = HyperNode(each.name, each.tier_name, tuple(sorted(members)), each.tier)
    return found


def _possible_parents(stays: Tree, here: Tree, wanted: Tree) -> Iterator[tuple[str, list[str]]]:
    """Yield the present parent of each, the wanted one, and those that are to have all its members, closest first."""
    present, planned = _parents(here), _parents(wanted)
    owner, places = _owners(wanted.values()), _places(wanted)
    for name, each in stays.items():
        first, *others = (places.get(owner.get(member, ""), ()) for member in each.members)
        common = [place.domain for place in first if all(place in other for other in others)]
        yield name, [present.get(name, ""), planned.get(name, ""), *common]


def _unsteady_children(stays: Tree, here: Tree, around: Tree) -> set[str]:
    """Return the children of what stays that are not wanted below it, or would be empty for a moment."""
    steady = _shrunk(here, around)
    found, queue = set[str](), list(stays.values())
    while queue:
        each = queue.pop()
        children = {one.name for one in each.members if one.kind == "HyperNode"} - stays.keys() - found
        found |= (new := {name for name in children if name not in steady or around[name].tier >= each.tier})
        queue += (here[name] for name in new)
    return found


def _without(tree: Tree, nodes: AbstractSet[Member]) -> dict[str, HyperNode]:
    """Return a tree without nodes, and without the domains that have no others."""
    found: dict[str, HyperNode] = {}
    for each in _closest_first(tree):
        members = [one for one in each.members if (one.name in found if one.kind == "HyperNode" else one not in nodes)]
        if members:
            found[each.name] = _with(each, members)
    return found


def _union(one: Tree, other: Tree) -> dict[str, HyperNode]:
    """Return the domains of two trees, with the members of both."""
    found = {**one, **other}
    for name in one.keys() & other.keys():
        if one[name] is not other[name]:
            found[name] = _with(other[name], {*one[name].members, *other[name].members})
    return found


def _with(hypernode: HyperNode, members: Collection[Member]) -> HyperNode:
    if len(members) == len(hypernode.members):
        return hypernode
    return HyperNode(hypernode.name, hypernode.tier_name, tuple(sorted(members)), hypernode.tier)


def _closest_first(tree: Tree) -> list[HyperNode]:
    return sorted(tree.values(), key=lambda each: (each.tier, each.name))


def _parents(tree: Tree) -> dict[str, str]:
    return {one.name: each.name for each in tree.values() for one in each.members if one.kind == "HyperNode"}


def _owners(hypernodes: Iterable[HyperNode]) -> dict[Member, str]:
    return {member: each.name for each in hypernodes for member in each.members}


def _nodes(tree: Tree) -> int:
    return sum(len(each.members) for each in tree.values()) - len(_parents(tree))


def _domains(places: Iterable[_Place]) -> set[str]:
    return {place.domain for place in places}
