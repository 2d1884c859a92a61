"""Volcano's rules for the HyperNodes of a cluster, restated from what its scheduler does, and not from our code.

A HyperNode has at least one member (its CRD and its admission). One with a second parent ("already has a parent"), in a
cycle, or whose tier is not above those of its children makes the scheduler ignore all topologies; so does, until it
appears, a child that does not exist.
"""

from collections.abc import Iterable, Mapping

from gkm.topology.hypernodes import HyperNode, Member


def violations(hypernodes: Mapping[str, HyperNode]) -> list[str]:
    found: list[str] = []
    for name, hypernode in hypernodes.items():
        if name != hypernode.name:
            found.append(f"{name} is stored as {hypernode.name}")
        if not hypernode.members:
            found.append(f"{name} has no member")
        if len(set(hypernode.members)) != len(hypernode.members):
            found.append(f"{name} has a member twice")
    parents = _parents(hypernodes)
    for child, above in parents.items():
        if len(above) > 1:
            found.append(f"{child} already has a parent: {above}")
        if child not in hypernodes:
            found.append(f"{above} have the child {child}, which does not exist")
        elif any(hypernodes[parent].tier <= hypernodes[child].tier for parent in above):
            found.append(f"the tier of {child} is not below those of {above}")
    return found + [f"{name} is in a cycle" for name in hypernodes if _is_below(parents, name, name)]


def _parents(hypernodes: Mapping[str, HyperNode]) -> dict[str, list[str]]:
    parents: dict[str, list[str]] = {}
    for name, hypernode in hypernodes.items():
        for member in hypernode.members:
            if member.kind == "HyperNode":
                parents.setdefault(member.name, []).append(name)
    return parents


def _is_below(parents: Mapping[str, list[str]], name: str, top: str) -> bool:
    queue, seen = list(parents.get(name, ())), set[str]()
    while queue:
        above = queue.pop()
        if above == top:
            return True
        if above not in seen:
            seen.add(above)
            queue += parents.get(above, ())
    return False


def nodes_of(hypernodes: Mapping[str, HyperNode], name: str) -> set[str]:
    """Return the nodes of a HyperNode, of its children too."""
    found: set[str] = set()
    queue, seen = [name], {name}
    while queue:
        hypernode = hypernodes.get(queue.pop())
        for member in hypernode.members if hypernode else ():
            if member.kind == "Node":
                found.add(member.name)
            elif member.name not in seen:
                seen.add(member.name)
                queue.append(member.name)
    return found


def doubly_placed(hypernodes: Mapping[str, HyperNode], nodes: Iterable[str]) -> list[str]:
    """Return nodes in two HyperNodes of which neither contains the other."""
    parents = _parents(hypernodes)
    found: list[str] = []
    for node in nodes:
        around = [name for name in hypernodes if Member("Node", node) in hypernodes[name].members]
        pairs = [(one, other) for one in around for other in around if one != other]
        if any(not (_is_below(parents, *pair) or _is_below(parents, *pair[::-1])) for pair in pairs):
            found.append(node)
    return found


def with_two_tiers(hypernodes: Mapping[str, HyperNode]) -> set[str]:
    """Return the tier names that have several tiers."""
    tiers: dict[str, set[int]] = {}
    for hypernode in hypernodes.values():
        tiers.setdefault(hypernode.tier_name, set()).add(hypernode.tier)
    return {name for name, each in tiers.items() if len(each) > 1}
