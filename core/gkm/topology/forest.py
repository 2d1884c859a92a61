"""Parents and order of a set of HyperNodes, which need not be valid: second parents, cycles and missing members. Pure.

Linear in the number of members, and without recursion: providers and strangers decide the depth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gkm.topology.hypernodes import HyperNode


@dataclass(frozen=True, slots=True)
class Forest:
    """HyperNodes by name, the first of each.

    `parents` has the parents of each member HyperNode, also of `missing` ones. `order` lists parents before their
    children; it lacks the `cyclic` HyperNodes, which lie in a cycle or below one.
    """

    hypernodes: Mapping[str, HyperNode]
    duplicates: frozenset[str]
    parents: Mapping[str, tuple[str, ...]]
    missing: frozenset[str]
    order: tuple[str, ...]
    cyclic: frozenset[str]


def forest(hypernodes: Iterable[HyperNode]) -> Forest:
    """Return parents and order of HyperNodes."""
    by_name: dict[str, HyperNode] = {}
    duplicates: set[str] = set()
    parents: dict[str, dict[str, None]] = {}
    for hypernode in hypernodes:
        if by_name.setdefault(hypernode.name, hypernode) is not hypernode:
            duplicates.add(hypernode.name)
        for member in hypernode.members:
            if member.kind == "HyperNode":
                parents.setdefault(member.name, {})[hypernode.name] = None
    order = _order(by_name, parents)
    return Forest(
        by_name,
        frozenset(duplicates),
        {name: tuple(names) for name, names in parents.items()},
        frozenset(parents.keys() - by_name.keys()),
        tuple(order),
        frozenset(by_name.keys() - set(order)),
    )


def _order(by_name: Mapping[str, HyperNode], parents: Mapping[str, Mapping[str, None]]) -> list[str]:
    """Return the HyperNodes, each after all of its parents (Kahn's algorithm)."""
    waiting = {name: len(parents.get(name, ())) for name in by_name}
    children: dict[str, list[str]] = {}
    for child, names in parents.items():
        for name in names:
            children.setdefault(name, []).append(child)
    order = [name for name, count in waiting.items() if not count]
    for name in order:
        for child in children.get(name, ()):
            if child in waiting:
                waiting[child] -= 1
                if not waiting[child]:
                    order.append(child)
    return order
