"""The stable JSON of `gkm topology build` and `show`: fields are added, never renamed. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from gkm.topology.trees.tree import Tree
from msgspec import to_builtins

from gkm_cli.topology.outline import Branch, Outline

Json = dict[str, Any]


def tree_result(
    tree: Tree, outline: Outline, notes: Sequence[str], figures: Callable[[int, int], Json] | None = None
) -> Json:
    """Return the tree. `figures` returns further fields for the nodes of a domain, from one index up to another.

    A node stands where it is directly in a domain; `parent` is the `hyperNode` of a wider domain.
    """

    def domain(branch: Branch, parent: Branch | None) -> Json:
        return {
            "level": branch.level,
            "name": branch.name,
            "switch": branch.switch,
            "hyperNode": branch.hypernode,
            "parent": parent.hypernode if parent else None,
            "nodeCount": branch.end - branch.first,
            "nodes": [tree.nodes[index] for index in branch.nodes],
            **(figures(branch.first, branch.end) if figures else {}),
        }

    return {
        "levels": list(tree.levels),
        "nodeCount": len(tree.nodes),
        **(figures(0, len(tree.nodes)) if figures else {}),
        "domains": [domain(branch, parent) for branch, parent, _ in outline.walk()],
        "nodesInNone": [tree.nodes[index] for index in outline.nodes],
        "quarantined": [
            {"node": entry.node, "reason": entry.why.value, "message": entry.message} for entry in tree.quarantined
        ],
        "contradictions": to_builtins(tree.contradictions),
        "notes": list(notes),
    }
