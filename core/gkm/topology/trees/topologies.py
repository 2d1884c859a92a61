"""Make Node labels that name domains, and the objects of Kueue, KAI and Grove that refer to these labels. Pure.

The objects have all configured levels, from the widest to the closest, whether or not a level has domains: no project
lets all levels change.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gkm.api.topology_settings import LEVEL_LABELS, Topology
from gkm.topology.trees.names import label_value, own_label_value
from gkm.topology.trees.tree import Tree

_HOSTNAME = "kubernetes.io/hostname"
_HOST, _LEVEL = "host", "level-"
_LONGEST_VALUE = 63


def level_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node that GKM writes for levels of the topology; stale ones are removed from a node."""
    return {key: value for key, value in labels.items() if key.startswith(LEVEL_LABELS)}


def difference(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return a merge patch that turns the labels `found` into `wanted`; None removes a label."""
    patch: dict[str, str | None] = dict.fromkeys(found.keys() - wanted.keys())
    return patch | {key: value for key, value in wanted.items() if found.get(key) != value}


def node_labels(tree: Tree, settings: Topology) -> Mapping[str, Mapping[str, str]]:
    """Return the topology labels for each node of the tree, by the node's name.

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
                labels[position][LEVEL_LABELS + level] = value
    return dict(zip(tree.nodes, labels, strict=True))


def kueue(settings: Topology, version: Literal["v1beta1", "v1beta2"] = "v1beta2") -> dict[str, Any]:
    """Return the Topology of Kueue with the configured name."""
    return _topology(f"kueue.x-k8s.io/{version}", settings.kueue, settings)


def kai(settings: Topology) -> dict[str, Any]:
    """Return the Topology of KAI with the configured name."""
    return _topology("kai.scheduler/v1alpha1", settings.kai, settings)


def grove(settings: Topology, name: str) -> dict[str, Any]:
    """Return the ClusterTopologyBinding of Grove: the levels with the names that a PodCliqueSet requests.

    If GKM writes a Topology of KAI, Grove uses that one and reports drift. Otherwise Grove makes its own.
    """
    levels = [
        *(
            {"domain": _grove_domain(level.name), "key": LEVEL_LABELS + level.name}
            for level in reversed(settings.levels)
        ),
        {"domain": _HOST, "key": _HOSTNAME},
    ]
    bound = [{"schedulerName": "kai-scheduler", "topologyReference": settings.kai}] if settings.kai else []
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "ClusterTopologyBinding",
        "metadata": {"name": name},
        "spec": {"levels": levels} | ({"schedulerTopologyBindings": bound} if bound else {}),
    }


def _grove_domain(level: str) -> str:
    """Return a name that begins with a letter and is not the one of the host; unique, as the names of levels are."""
    plain = level[0].isalpha() and level != _HOST and not level.startswith(_LEVEL)
    return level if plain else _LEVEL + level


def node_features(tree: Tree, settings: Topology, namespace: str) -> Iterator[dict[str, Any]]:
    """Yield a NodeFeature for each node with its labels, which the master of Node Feature Discovery writes on the Node.

    The value of the label that names the node has at most 63 characters. So nodes with longer names have none.
    """
    for node, labels in sorted(node_labels(tree, settings).items()):
        if len(node) <= _LONGEST_VALUE:
            yield {
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
                "kind": "NodeFeature",
                "metadata": {
                    "name": f"gkm-topology-{node}",
                    "namespace": namespace,
                    "labels": {"nfd.node.kubernetes.io/node-name": node},
                },
                "spec": {"labels": dict(labels)},
            }


def _topology(api_version: str, name: str, settings: Topology) -> dict[str, Any]:
    keys = [*(LEVEL_LABELS + level.name for level in reversed(settings.levels)), _HOSTNAME]
    return {
        "apiVersion": api_version,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": key} for key in keys]},
    }
