"""The tree in the forms of other systems: objects for kubectl, Slurm's topology.yaml, commands for labels. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.trees import slurm, topologies, volcano
from gkm.topology.trees.topologies import level_labels, node_labels
from gkm.topology.trees.tree import Tree
from msgspec import structs

from gkm_cli.topology.hygiene import Mend, commands
from gkm_cli.topology.options import BuildOutput

DEFAULT_NAME = "gkm"
"""The name of a topology whose name is not configured."""
_NFD_NAMESPACE = "node-feature-discovery"
Documents = Iterable[Any]


def documents_of(output: BuildOutput, tree: Tree, settings: Topology) -> Documents:
    """Return the documents of a form; HyperNodes have the children first."""
    make = _FORMS.get(output)
    return make(tree, settings) if make else ()


def _hypernodes(tree: Tree, settings: Topology) -> Documents:
    return map(volcano.manifest, volcano.volcano(tree, settings).hypernodes.values())


def _kueue(_tree: Tree, settings: Topology) -> Documents:
    yield topologies.kueue(structs.replace(settings, kueue=settings.kueue or DEFAULT_NAME, node_labels=True))


def _kai(_tree: Tree, settings: Topology) -> Documents:
    yield topologies.kai(structs.replace(settings, kai=settings.kai or DEFAULT_NAME, node_labels=True))


def _grove(_tree: Tree, settings: Topology) -> Documents:
    yield topologies.grove(settings, settings.kai or DEFAULT_NAME)


def _nfd(tree: Tree, settings: Topology) -> Documents:
    return topologies.node_features(tree, settings, _NFD_NAMESPACE)


def _slurm_tree(tree: Tree, settings: Topology) -> Documents:
    yield slurm.tree_topology(tree, settings, DEFAULT_NAME)


def _slurm_block(tree: Tree, settings: Topology) -> Documents:
    yield slurm.block_topology(tree, settings, DEFAULT_NAME)


_FORMS: Mapping[BuildOutput, Callable[[Tree, Topology], Documents]] = {
    BuildOutput.HYPERNODES: _hypernodes,
    BuildOutput.KUEUE: _kueue,
    BuildOutput.KAI: _kai,
    BuildOutput.GROVE: _grove,
    BuildOutput.NFD: _nfd,
    BuildOutput.SLURM_TREE: _slurm_tree,
    BuildOutput.SLURM_BLOCK: _slurm_block,
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
