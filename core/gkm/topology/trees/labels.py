"""Labels of Nodes that name their domains, for the Topologies of Kueue and KAI. Pure."""

from collections.abc import Mapping

from gkm.api.topology_settings import LEVEL_LABELS, Topology
from gkm.topology.names import label_value, own_label_value
from gkm.topology.tree import Tree

PREFIX = LEVEL_LABELS
"""Labels with this prefix belong to GKM: one that a node must not have any more is removed."""


def level_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return those of a node's labels that belong to GKM's levels, of whatever tree."""
    return {key: value for key, value in labels.items() if key.startswith(PREFIX)}


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels to change, None for one to remove."""
    patch: dict[str, str | None] = dict.fromkeys(found.keys() - wanted.keys())
    return patch | {key: value for key, value in wanted.items() if found.get(key) != value}


def node_labels(tree: Tree, settings: Topology) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of each node of the tree. Quarantined nodes have none, so Kueue places nothing on them.

    A node without a domain has the label too, with a value of its own: Kueue ignores nodes without one. Values are
    unique at their level: other schedulers would join two racks of one name.
    """
    hashed = settings.hyper_nodes.hash_names
    labels: list[dict[str, str]] = [{} for _ in tree.nodes]
    for level, domains in zip(tree.levels, tree.domains, strict=True):
        for domain in domains:
            value = (
                own_label_value(level, domain.identity)
                if domain.own
                else label_value(level, domain.name, domain.identity, hashed=hashed)
            )
            for position in range(domain.first, domain.end):
                labels[position][PREFIX + level] = value
    return dict(zip(tree.nodes, labels, strict=True))
