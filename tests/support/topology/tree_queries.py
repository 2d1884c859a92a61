"""Questions that tests ask about a tree of domains."""

from collections.abc import Iterable, Mapping

from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.trees.tree import Tree


def together(tree: Tree, level: int, *nodes: str) -> bool:
    """Return whether nodes are in one domain of a level."""
    return any(set(nodes) <= set(tree.nodes[domain.first : domain.end]) for domain in tree.domains[level])


def reasons(quarantined: Iterable[Quarantined]) -> dict[str, QuarantineReason]:
    """Return why each node is quarantined."""
    return {entry.node: entry.why for entry in quarantined}


def places(tree: Tree) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the domains of each node, from the closest level to the widest, "" for an own one."""
    found: dict[str, list[str]] = {name: [] for name in tree.nodes}
    for domains in tree.domains:
        for domain in domains:
            for name in tree.nodes[domain.first : domain.end]:
                found[name].append("" if domain.own else domain.name)
    return {name: tuple(names) for name, names in found.items()}
