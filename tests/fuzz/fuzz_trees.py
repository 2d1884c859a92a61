"""Labels and HyperNodes of strangers: whatever they are, the tree is whole, and what Volcano gets of it is valid."""

import base64
import zlib
from collections.abc import Mapping

import msgspec
from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.hypernodes import HyperNode, forest
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.placements import placements
from gkm.topology.provider_trees import HyperNodeSet, InvalidTree, Refused, pack, unpack
from gkm.topology.providers import Event
from gkm.topology.trees import volcano
from gkm.topology.trees.merge import build_tree
from gkm.topology.trees.tree import Tree

_MOST_NODES = 200
_LEVELS = ("nvlink", "rack", "block", "region")
_IN_PARENT = [TopologyLevel(name, unique="parent" if name == "rack" else "cluster") for name in _LEVELS]
SETTINGS = (Topology(), Topology(levels=_IN_PARENT), Topology(levels=_IN_PARENT, missing_fabric="quarantine"))


class _Cluster(msgspec.Struct):
    """The labels of nodes by their names, and what another provider reports."""

    nodes: dict[str, dict[str, str]]
    hypernodes: tuple[HyperNode, ...] = ()


def labels_and_hypernodes(data: bytes) -> None:
    """Each node is in the tree or quarantined, domains nest, and the order of nodes does not matter."""
    try:
        cluster = msgspec.json.decode(data, type=_Cluster)
        listed = [_node(name, labels) for name, labels in cluster.nodes.items()][:_MOST_NODES]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for settings in SETTINGS:
        levels = [level.name for level in settings.levels]
        by_labels = label_placements(listed, settings)
        other = placements(cluster.hypernodes, levels)
        for first, second in ((by_labels, other), (other, by_labels)):
            named = [("first", first), ("second", second)]
            names = [node.name for node in listed]
            tree = build_tree(named, settings, existing=names, unplaced=names)
            assert sorted([*tree.nodes, *(each.node for each in tree.quarantined)]) == sorted(names)
            assert tree == build_tree(named, settings, existing=names[::-1], unplaced=names[::-1])
            _check_nested(tree)
            written = volcano.volcano(tree, settings).hypernodes
            _check_forest(written)
            tiers = {name: hypernode.tier for name, hypernode in written.items()}
            for hypernode in written.values():
                assert hypernode.members
                below = [member.name for member in hypernode.members if member.kind == "HyperNode"]
                assert all(tiers[name] < hypernode.tier for name in below)
        assert label_placements(listed[::-1], settings) == by_labels


def _node(name: str, labels: dict[str, str]) -> Node:
    found = {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"allocatable": {}}}
    return msgspec.convert(found, Node)


def _check_nested(tree: Tree) -> None:
    """The domains of a level share out all nodes, and each lies in its parent."""
    for level, domains in enumerate(tree.domains):
        assert [domain.first for domain in domains] == [0, *(domain.end for domain in domains)][: len(domains)]
        assert not domains or domains[-1].end == len(tree.nodes)
        assert len({domain.identity for domain in domains}) == len(domains)
        for domain in domains:
            assert domain.first < domain.end
            if level + 1 < len(tree.levels):
                parent = tree.domains[level + 1][domain.parent]
                assert parent.first <= domain.first
                assert domain.end <= parent.end


def events_of_a_provider(data: bytes) -> None:
    """After each event the HyperNodes are a forest; what is refused changes nothing and names no content."""
    found = HyperNodeSet()
    for number, line in enumerate(data.split(b"\n")):
        try:
            event = msgspec.json.decode(line, type=Event)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        before = dict(found.hypernodes)
        try:
            found.apply(event, first=number == 0)
        except Refused as error:
            _check_kind(error.kind)
            assert found.hypernodes == before
            continue
        _check_forest(found.hypernodes)


def tree_of_a_provider(data: bytes) -> None:
    """A tree is refused without its content, or a forest that is packed again as the same."""
    for text in (data.decode("latin-1"), base64.b64encode(zlib.compress(data)).decode()):
        found = HyperNodeSet()
        try:
            found.apply(unpack(text), first=True)
        except InvalidTree as error:
            _check_kind(str(error))
            continue
        except Refused as error:
            _check_kind(error.kind)
            continue
        _check_forest(found.hypernodes)
        again = HyperNodeSet()
        again.apply(unpack(pack(found.hypernodes.values(), found.quarantined)), first=True)
        assert again.hypernodes == found.hypernodes


def _check_forest(hypernodes: Mapping[str, HyperNode]) -> None:
    """Each member has one parent, members exist, and nothing contains itself."""
    found = forest(hypernodes.values())
    assert not found.cyclic
    assert not found.missing
    assert all(len(parents) == 1 for parents in found.parents.values())
    nodes = [member.name for each in hypernodes.values() for member in each.members if member.kind == "Node"]
    assert len(set(nodes)) == len(nodes)


def _check_kind(kind: str) -> None:
    assert kind.isascii()
    assert kind.isprintable()
    assert len(kind) < 80
    assert "secret" not in kind
