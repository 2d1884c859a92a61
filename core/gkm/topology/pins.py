"""HyperNodes that stay as they are on the server, because it refuses to change them, and the others around them. Pure.

What is refused is there all the same. So its nodes are in no other domain, its members still exist, and it remains in
its domain: otherwise a node would be in two domains, and a healthy rack in none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import takewhile

from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.write_order import Write, ordered_writes


def writes_around(
    current: Mapping[str, HyperNode],
    wanted: Mapping[str, HyperNode],
    refused: AbstractSet[str],
    adopted: AbstractSet[str] = frozenset(),
) -> list[Write]:
    """Return the writes towards the wanted HyperNodes that change none of the `refused` ones of `current`.

    The `adopted` HyperNodes have a parent of another source. The writes end before the first one that would have to
    change what is pinned: each beginning of ordered writes leaves a valid tree.
    """
    pins = refused & current.keys()
    if not pins:
        return ordered_writes(current, wanted)
    stays, owner = _pinned(current, wanted, pins)
    _decide_parents(stays, owner, current, wanted, adopted)
    # Others may have added members to what is pinned; that cannot be repaired now.
    now = {name: stays.get(name, each) for name, each in current.items()}
    gone = [name for name, each in stays.items() if not each.members]
    for name in gone:
        del stays[name], now[name]
    around = _around(stays, owner, {name: each for name, each in wanted.items() if name not in gone})
    children = {name for each in stays.values() for kind, name in each.members if kind == "HyperNode"}
    untouchable = stays.keys() | (children - around.keys())
    return list(takewhile(lambda write: write.hypernode.name not in untouchable, ordered_writes(now, around)))


def _pinned(
    current: Mapping[str, HyperNode], wanted: Mapping[str, HyperNode], names: Iterable[str]
) -> tuple[dict[str, HyperNode], dict[Member, str]]:
    """Return what stays, with its usable members, and the owners of these.

    A child stays too unless it is wanted below its parent, and never becomes empty on the way.
    """
    lasting = _lasting(current, wanted)
    stays: dict[str, HyperNode] = {}
    owner: dict[Member, str] = {}
    queue = sorted(names, reverse=True)
    while queue:
        name = queue.pop()
        if name in stays:
            continue
        here = current[name]
        members = [member for member in here.members if _rises(current, member, here.tier)]
        members = [member for member in members if owner.setdefault(member, name) == name]
        stays[name] = HyperNode(name, here.tier_name, tuple(sorted(members)), here.tier)
        children = [member.name for member in members if member.kind == "HyperNode"]
        queue += [child for child in children if child not in lasting or wanted[child].tier >= here.tier]
    return stays, owner


def _lasting(current: Mapping[str, HyperNode], wanted: Mapping[str, HyperNode]) -> set[str]:
    """Return the HyperNodes that have a member now and later, which is a node or lasts itself."""
    counts = Counter(member for each in current.values() for member in each.members)
    lasting: set[str] = set()
    for name in sorted(current.keys() & wanted.keys(), key=lambda name: current[name].tier):
        both = set(current[name].members) & set(wanted[name].members)
        if any(counts[member] == 1 and (member.kind == "Node" or member.name in lasting) for member in both):
            lasting.add(name)
    return lasting


def _rises(hypernodes: Mapping[str, HyperNode], member: Member, tier: int) -> bool:
    return member.kind == "Node" or (member.name in hypernodes and hypernodes[member.name].tier < tier)


def _decide_parents(
    stays: Mapping[str, HyperNode],
    owner: dict[Member, str],
    current: Mapping[str, HyperNode],
    wanted: Mapping[str, HyperNode],
    adopted: AbstractSet[str],
) -> None:
    """Decide the parents of what stays: the present one if that is wanted, or else the wanted one.

    Without either, it is the closest HyperNode that is to have all of its members.
    """
    for hypernodes in (current, wanted):
        for parent in hypernodes.values():
            if parent.name not in wanted or parent.name in stays:
                continue
            for member in parent.members:
                here = stays.get(member.name) if member.kind == "HyperNode" else None
                if here is not None and here.name not in adopted and here.tier < wanted[parent.name].tier:
                    owner.setdefault(member, parent.name)
    above = {member: each.name for each in wanted.values() for member in each.members}
    for here in stays.values():
        child = Member("HyperNode", here.name)
        chains = [_chain(above, member) for member in here.members]
        common = [name for name in chains[0] if all(name in chain for chain in chains)] if chains else []
        wider = [name for name in common if name not in stays and wanted[name].tier > here.tier]
        if wider and here.name not in adopted:
            owner.setdefault(child, wider[0])


def _chain(above: Mapping[Member, str], member: Member) -> list[str]:
    """Return the HyperNodes around a member, the closest first."""
    chain: list[str] = []
    name = above.get(member)
    while name is not None:
        chain.append(name)
        name = above.get(Member("HyperNode", name))
    return chain


def _around(
    stays: Mapping[str, HyperNode], owner: Mapping[Member, str], wanted: Mapping[str, HyperNode]
) -> dict[str, HyperNode]:
    """Return what stays, and the wanted HyperNodes with the members that are left to them."""
    added: dict[str, set[Member]] = {}
    for member, name in owner.items():
        added.setdefault(name, set()).add(member)
    found = dict(stays)
    for each in sorted(wanted.values(), key=lambda each: each.tier):
        if each.name in stays:
            continue
        free = (member for member in each.members if member not in owner)
        usable = {
            member for member in free if member.kind == "Node" or (member.name in found and member.name not in stays)
        }
        if members := usable | added.get(each.name, set()):
            found[each.name] = HyperNode(each.name, each.tier_name, tuple(sorted(members)), each.tier)
    return found
