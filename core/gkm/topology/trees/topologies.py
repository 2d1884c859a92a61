"""Labels of Nodes that name their domains, and the `Topology` objects of Kueue and KAI, which name these labels. Pure.

The objects have all configured levels, from the widest to the closest, whether or not a level has domains: neither
project lets all levels change.
"""

from collections.abc import Mapping
from typing import Any, Literal

from gkm.api.topology_settings import LEVEL_LABELS, Topology
from gkm.topology.trees.names import label_value, own_label_value
from gkm.topology.trees.tree import Tree

PREFIX = LEVEL_LABELS
"""Labels with this prefix belong to GKM: stale ones are removed from a node."""
_HOSTNAME = "kubernetes.io/hostname"


def level_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node that belong to GKM's levels, of any tree."""
    return {key: value for key, value in labels.items() if key.startswith(PREFIX)}


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels to change, None for one to remove."""
    patch: dict[str, str | None] = dict.fromkeys(found.keys() - wanted.keys())
    return patch | {key: value for key, value in wanted.items() if found.get(key) != value}


def node_labels(tree: Tree, settings: Topology) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of each node of the tree. Quarantined nodes have no labels, so Kueue places no pods on them.

    A node without a domain has the label too, with a unique value: Kueue ignores nodes without the label. Values are
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


def kueue(settings: Topology, version: Literal["v1beta1", "v1beta2"] = "v1beta2") -> dict[str, Any]:
    """Return the Topology of Kueue with the configured name."""
    return _topology(f"kueue.x-k8s.io/{version}", settings.kueue, settings)


def kai(settings: Topology) -> dict[str, Any]:
    """Return the Topology of KAI with the configured name."""
    return _topology("kai.scheduler/v1alpha1", settings.kai, settings)


def _topology(api_version: str, name: str, settings: Topology) -> dict[str, Any]:
    keys = [*(PREFIX + level.name for level in reversed(settings.levels)), _HOSTNAME]
    return {
        "apiVersion": api_version,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": key} for key in keys]},
    }
