"""Questions that tests ask about a tree of domains."""

from collections.abc import Iterable

from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.tree import Tree


def together(tree: Tree, level: int, *nodes: str) -> bool:
    """Return whether nodes are in one domain of a level."""
    return any(set(nodes) <= set(tree.nodes[domain.first : domain.end]) for domain in tree.domains[level])


def reasons(quarantined: Iterable[Quarantined]) -> dict[str, QuarantineReason]:
    """Return why each node is quarantined."""
    return {entry.node: entry.why for entry in quarantined}
