"""The objects of a scheduler as documents that kubectl applies, and labels as commands. Pure."""

from collections.abc import Iterator
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology.tree import Tree
from gkm.topology.trees import topologies, volcano
from gkm.topology.trees.labels import node_labels
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


def label_commands(tree: Tree, settings: Topology) -> Iterator[str]:
    """Yield the commands for the labels that the levels of a Topology are.

    They are no Node objects: `kubectl apply` would create a Node that was deleted since the list was made.
    """
    found = node_labels(tree, settings)
    return commands(Mend(node, key, found[node][key], sure=True) for node in sorted(found) for key in found[node])
