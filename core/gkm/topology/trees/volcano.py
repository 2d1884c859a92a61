"""Convert the tree to HyperNodes of Volcano. Pure.

A tier is the position of its level, also where other levels have no domains. Own domains are not written: their nodes
are members of the next domain that is. Volcano's scheduler accepts nodes and HyperNodes among the members of one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gkm.api.topology_settings import Topology
from gkm.topology.hypernodes import SOURCE, SOURCE_LABEL, HyperNode, Member
from gkm.topology.trees.names import hypernode_name
from gkm.topology.trees.tree import Domain, Tree, nested

API_VERSION = "topology.volcano.sh/v1alpha1"
# etcd refuses requests beyond 1.5 MiB; what the API server adds to an object fits into the difference.
_MAX_BYTES = 1 << 20
_MEMBER_BYTES = len('{"type":"HyperNode","selector":{"exactMatch":{"name":""}}},')
_OBJECT_BYTES = 4096
# Volcano's ValidatingAdmissionPolicy for HyperNodes takes names of members for qualified names; names of nodes may be
# longer (RFC 1123, 253 characters).
_LONGEST_MEMBER = 63


@dataclass(frozen=True, slots=True)
class VolcanoTree:
    """The HyperNodes by name. `too_large` has the names of HyperNodes that are left out: etcd could not store them.

    The members of a HyperNode that is left out have no parent. The `unlisted` nodes are in no HyperNode: their names
    are longer than Volcano's admission accepts of a member.
    """

    hypernodes: Mapping[str, HyperNode]
    too_large: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()


def volcano(tree: Tree, settings: Topology) -> VolcanoTree:
    """Return the HyperNodes of a tree, children before parents."""
    hashed = settings.hyper_nodes.hash_names
    written: dict[str, HyperNode] = {}
    too_large: list[str] = []

    def member(domain: Domain, inside: list[Member]) -> Member | None:
        if not inside:
            return None
        level = tree.levels[domain.level]
        name = hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=hashed)
        hypernode = HyperNode(name, level, tuple(sorted(inside)), domain.level + 1)
        if _size(hypernode) > _MAX_BYTES:
            too_large.append(name)
            return None
        written[name] = hypernode
        return Member("HyperNode", name)

    listed = ((at, Member("Node", name)) for at, name in enumerate(tree.nodes) if len(name) <= _LONGEST_MEMBER)
    nested(tree, listed, member)
    unlisted = tuple(name for name in tree.nodes if len(name) > _LONGEST_MEMBER)
    return VolcanoTree(written, tuple(too_large), unlisted)


def manifest(hypernode: HyperNode) -> dict[str, Any]:
    """Return a HyperNode as an API object with GKM's label."""
    return {
        "apiVersion": API_VERSION,
        "kind": "HyperNode",
        "metadata": {"name": hypernode.name, "labels": {SOURCE_LABEL: SOURCE}},
        "spec": {
            "tier": hypernode.tier,
            "tierName": hypernode.tier_name,
            "members": [
                {"type": member.kind, "selector": {"exactMatch": {"name": member.name}}} for member in hypernode.members
            ],
        },
    }


def _size(hypernode: HyperNode) -> int:
    """Return a bound for the size of the object in JSON, in bytes; names are ASCII."""
    return _OBJECT_BYTES + sum(_MEMBER_BYTES + len(member.name) for member in hypernode.members)
