"""HyperNodes as values, and the parents and the order of a set of them. Pure.

Providers send them, the controllers want them, and the API server has them. A HyperNode is a domain of the network
(topology.volcano.sh/v1alpha1). Its members are nodes or other HyperNodes. A set of them need not be valid: there are
second parents, cycles and missing members. All is linear in the number of members, and without recursion: providers and
strangers decide the depth.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec import Struct

MemberKind = Literal["Node", "HyperNode"]

# Volcano's label for the origin of a HyperNode, and the value that marks ours. Objects with another value are foreign.
SOURCE_LABEL = "volcano.sh/network-topology-source"
SOURCE = "gkm"


class Member(NamedTuple):
    """A reference to a member (Node or HyperNode) of a HyperNode by exact name."""

    kind: MemberKind
    name: str


class HyperNode(Struct, frozen=True):
    """A domain of the network. `tier` rises from the members to the HyperNode; 0 is unknown, as providers may leave it.

    `tier_name` is the name of a level (`topology.levels`). The order of `members` has no meaning; values that GKM makes
    have them sorted.
    """

    name: str
    tier_name: str
    members: tuple[Member, ...]
    tier: int = 0


@dataclass(frozen=True, slots=True)
class Forest:
    """A set of HyperNodes by name, the first of each name, with their parents.

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
    """Return the parents and an order of HyperNodes."""
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
