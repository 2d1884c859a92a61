"""Convert the tree to Slurm's topology.yaml (25.05 and later), for topology/tree and topology/block. Pure.

A switch of Slurm has switches or nodes, never both, and names have at most 64 characters (topology.yaml(5)). Switches
and blocks have the names of their HyperNodes; a hyphen follows a number of 20 digits at the end. Nodes without a
domain, and quarantined ones, are not listed: Slurm starts no job there. slurmctld 26.05 ends on a topology without a
switch or a block, also at `scontrol reconfigure`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.trees.names import hypernode_name
from gkm.topology.trees.tree import Domain, Tree, nested

_DIRECT = "nodes"
"""The level in the names of switches for the nodes that a domain has beside inner domains."""
# Slurm holds the number at the end of a listed name in 64 bits: a larger one becomes 18446744073709551615.
_LONG_NUMBER = re.compile(r"[0-9]{20}\Z")


class NoDomains(ValueError):
    """A topology would have no switch or no block."""


class _Unit(NamedTuple):
    """A node or a switch."""

    name: str
    is_node: bool


def tree_topology(tree: Tree, settings: Topology, name: str) -> list[dict[str, Any]]:
    """Return topology.yaml: a switch for each domain, the closest level first, and one above all that have no parent.

    Slurm starts no job on switches without a common parent (topology.conf(5)). No domain has the name of this switch:
    their names begin with a level.

    Raises:
        NoDomains: no node is in a domain.
    """
    switches: list[dict[str, str]] = []

    def switch(domain: Domain, inside: list[_Unit]) -> _Unit | None:
        nodes = [unit.name for unit in inside if unit.is_node]
        inner = [unit.name for unit in inside if not unit.is_node]
        if nodes and inner:
            direct = _name_of_direct(domain, tree)
            switches.append({"switch": direct, "nodes": ",".join(nodes)})
            nodes, inner = [], sorted([*inner, direct])
        made = _Unit(_name(domain, tree, settings), is_node=False)
        content = {"children": ",".join(inner)} if inner else {"nodes": ",".join(nodes)}
        switches.append({"switch": made.name} | content)
        return made

    outer = nested(tree, ((at, _Unit(node, is_node=True)) for at, node in enumerate(tree.nodes)), switch)
    if not switches:
        raise NoDomains("no node is in a domain of any level: Slurm would have no switch")
    widest = [unit.name for unit in outer if not unit.is_node]
    if len(widest) > 1:
        switches.append({"switch": name, "children": ",".join(widest)})
    return [{"topology": name, "cluster_default": True, "tree": {"switches": switches}}]


def block_topology(tree: Tree, settings: Topology, name: str) -> list[dict[str, Any]]:
    """Return topology.yaml with a block for each domain of the closest level.

    The base size is the size of the smallest block: each block must have as many nodes (topology.yaml(5) of 25.05). A
    larger size stands for a wider level whose domains all have the same number of blocks, if that is a power of two:
    Slurm joins blocks in their order.

    Raises:
        NoDomains: no node is in a domain of the closest level.
    """
    closest = [domain for domain in tree.domains[0] if not domain.own]
    if not closest:
        raise NoDomains(f"no node is in a domain of the closest level, {tree.levels[0]}: Slurm would have no block")
    blocks = [
        {"block": _name(domain, tree, settings), "nodes": ",".join(tree.nodes[domain.first : domain.end])}
        for domain in closest
    ]
    sizes = [*_sizes(tree, closest)]
    return [{"topology": name, "cluster_default": True, "block": {"block_sizes": sizes, "blocks": blocks}}]


def _sizes(tree: Tree, blocks: Sequence[Domain]) -> Iterator[int]:
    size = min(domain.end - domain.first for domain in blocks)
    yield size
    joined = 1
    for domains in tree.domains[1:]:
        counts = Counter(_around(domains, blocks))
        count = next(iter(counts.values()))
        if any(other != count for other in counts.values()) or count & (count - 1):
            return
        if count > joined:
            joined = count
            yield size * count


def _around(domains: Sequence[Domain], blocks: Sequence[Domain]) -> Iterator[int]:
    """Yield the index of the domain around each block; both are in the order of the tree."""
    at = 0
    for block in blocks:
        while domains[at].end < block.end:
            at += 1
        yield at


def _name(domain: Domain, tree: Tree, settings: Topology) -> str:
    """Return the name of a domain's switch or block."""
    level, hashed = tree.levels[domain.level], settings.hyper_nodes.hash_names
    return _listable(hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=hashed))


def _name_of_direct(domain: Domain, tree: Tree) -> str:
    """Return the name of the switch for the nodes of a domain that are in no inner one: always with a digest."""
    identity = f"{tree.levels[domain.level]}/{domain.identity}"
    return _listable(hypernode_name(_DIRECT, "", identity, tree.levels, hashed=True))


def _listable(name: str) -> str:
    """Return a name that Slurm finds again in a list. No HyperNode has a name with a hyphen at its end."""
    return f"{name}-" if _LONG_NUMBER.search(name) else name
