"""The tree in the forms of other systems: objects for kubectl, Slurm's topology.yaml, commands for labels. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.trees import slurm, topologies, volcano
from gkm.topology.trees.topologies import level_labels, node_labels
from gkm.topology.trees.tree import Tree
from msgspec import structs

from gkm_cli.output import UsageError
from gkm_cli.topology.hygiene import Mend, commands
from gkm_cli.topology.options import BuildOutput

DEFAULT_NAME = "gkm"
"""The name of a topology whose name is not configured."""
_NFD_NAMESPACE = "node-feature-discovery"
Documents = Iterable[Any]


def documents_of(output: BuildOutput, tree: Tree, settings: Topology) -> Documents:
    """Return the documents of an output format of `gkm topology build`; HyperNodes have the children first.

    Raises:
        UsageError: Slurm cannot start with the tree.
    """
    make = _FORMS.get(output)
    return make(tree, settings) if make else ()


def _slurm(convert: Callable[[Tree, Topology, str], Any], tree: Tree, settings: Topology) -> Documents:
    try:
        return [convert(tree, settings, DEFAULT_NAME)]
    except slurm.NoDomains as error:
        raise UsageError(
            f"slurmctld would not start with this topology.yaml: {error}",
            "`-o tree` shows the domains: give a source of the level, or name other levels in topology.levels",
        ) from error


_FORMS: Mapping[BuildOutput, Callable[[Tree, Topology], Documents]] = {
    BuildOutput.HYPERNODES: lambda tree, settings: map(
        volcano.manifest, volcano.volcano(tree, settings).hypernodes.values()
    ),
    BuildOutput.KUEUE: lambda _tree, settings: [
        topologies.kueue(structs.replace(settings, kueue=settings.kueue or DEFAULT_NAME, node_labels=True))
    ],
    BuildOutput.KAI: lambda _tree, settings: [
        topologies.kai(structs.replace(settings, kai=settings.kai or DEFAULT_NAME, node_labels=True))
    ],
    BuildOutput.GROVE: lambda _tree, settings: [topologies.grove(settings, settings.kai or DEFAULT_NAME)],
    BuildOutput.NFD: lambda tree, settings: topologies.node_features(tree, settings, _NFD_NAMESPACE),
    BuildOutput.SLURM_TREE: partial(_slurm, slurm.tree_topology),
    BuildOutput.SLURM_BLOCK: partial(_slurm, slurm.block_topology),
}


def label_commands(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the commands for the labels that the levels of a Topology are, and that remove the labels of other trees.

    Nodes that are not in the tree, such as quarantined ones, keep no labels. These are no Node objects: `kubectl apply`
    would create a Node that was deleted since the list was made.
    """
    return commands(_mends(tree, settings, nodes))


def _mends(tree: Tree, settings: Topology, nodes: Iterable[Node]) -> Iterator[Mend]:
    wanted = node_labels(tree, settings)
    for node in sorted(nodes, key=lambda node: node.name):
        of_node = wanted.get(node.name, {})
        for key in {**level_labels(node.labels), **of_node}:
            yield Mend(node.name, key, of_node.get(key), sure=True)
