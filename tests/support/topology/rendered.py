"""Trees from places written by hand, for tests of what schedulers make of them."""

from collections.abc import Mapping, Sequence

from gkm.api.topology_settings import HyperNodes, Topology, TopologyLevel
from gkm.topology.hypernodes import HyperNode
from gkm.topology.placements import Placements
from gkm.topology.trees.merge import build_tree
from gkm.topology.trees.tree import Tree
from gkm.topology.trees.volcano import volcano

Places = Mapping[str, Sequence[str]]
"""The domains of each node, from the closest level to the widest, "" for none."""


def settings(*levels: str, hashed: bool = False, unique_in_parent: Sequence[str] = ()) -> Topology:
    """Return settings with these levels, and Topologies of Kueue and KAI called gkm."""
    made = [TopologyLevel(name, unique="parent" if name in unique_in_parent else "cluster") for name in levels]
    return Topology(
        levels=made, hyper_nodes=HyperNodes(enabled=True, hash_names=hashed), kueue="gkm", kai="gkm", node_labels=True
    )


SETTINGS = settings("rack", "block")


def tree(places: Places, chosen: Topology = SETTINGS) -> Tree:
    """Return the tree of nodes at these places."""
    return build_tree([("test", Placements({node: tuple(place) for node, place in places.items()}))], chosen)


def hypernodes(places: Places, chosen: Topology = SETTINGS) -> dict[str, HyperNode]:
    """Return the HyperNodes of nodes at these places, by name."""
    return dict(volcano(tree(places, chosen), chosen).hypernodes)
