"""The objects of a scheduler as documents that kubectl applies, and labels as commands. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.trees import topologies, volcano
from gkm.topology.trees.topologies import level_labels, node_labels
from gkm.topology.trees.tree import Tree
from msgspec import structs

from gkm_cli.topology.mending import Mend, commands
from gkm_cli.topology.options import BuildOutput

Json = dict[str, Any]
DEFAULT_NAME = "gkm"
"""The name of a Topology whose name is not configured."""


def objects(output: BuildOutput, tree: Tree, settings: Topology) -> Iterator[Json]:
    """Yield HyperNodes, children first; or a Topology."""
    names = {"kueue": settings.kueue or DEFAULT_NAME, "kai": settings.kai or DEFAULT_NAME}
    named = structs.replace(settings, **names, node_labels=True)
    if output is BuildOutput.HYPERNODES:
        yield from map(volcano.manifest, volcano.volcano(tree, settings).hypernodes.values())
    elif output is BuildOutput.KUEUE:
        yield topologies.kueue(named)
    elif output is BuildOutput.KAI:
        yield topologies.kai(named)


def label_commands(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the commands for the labels that the levels of a Topology are, and that remove those of other trees.

    Nodes that are not in the tree, such as quarantined ones, keep none. These are no Node objects: `kubectl apply`
    would create a Node that was deleted since the list was made.
    """
    return commands(_mends(tree, settings, nodes))


def _mends(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[Mend]:
    wanted = node_labels(tree, settings)
    for node in sorted(nodes, key=lambda node: node.name):
        of_node = wanted.get(node.name, {})
        for key in {**level_labels(node.labels), **of_node}:
            yield Mend(node.name, key, of_node.get(key), sure=True)
