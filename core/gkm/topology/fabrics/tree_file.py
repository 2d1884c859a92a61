"""A tree of domains from a file that people or programs write, in YAML or JSON, as HyperNodes. Pure.

Two shapes are read. The models of topograph have `switches` and blocks (gkm.topology.fabrics.topograph_model). Ours has
`domains`, each with its `level`, its `nodes` and the `domains` in it. Names of nodes may be ranges: `gpu-[001-018]`.
Fields that describe no tree are ignored.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct, ValidationError

from gkm.api import documents
from gkm.api.topology_settings import LevelName
from gkm.topology.fabrics.domain_tree import NamedDomain, TreeInvalid, hypernodes
from gkm.topology.fabrics.network import FabricDiscovery, MatchedHosts
from gkm.topology.fabrics.topograph_model import NodeNames, TopographModel, named_domains
from gkm.topology.hypernodes import HyperNode

MAX_BYTES = 4 << 20
MAX_VALUES = 1 << 17
"""Limit of YAML values: 100,000 nodes listed one by one."""
_LINE = re.compile(r"line \d{1,9}")


class TreeFileDomain(Struct):
    """A domain in a tree file of GKM's format, with its nodes and inner domains."""

    name: str
    level: LevelName
    nodes: tuple[str, ...] = ()
    domains: tuple["TreeFileDomain", ...] = ()


class Model(TopographModel):
    """A tree file in GKM's or topograph's format."""

    domains: tuple[TreeFileDomain, ...] = ()


def parse(text: bytes) -> tuple[HyperNode, ...]:
    """Return the HyperNodes of a tree file, the closest first; domains without nodes are left out.

    The level of a capacity block is `nvlink`; the level of a switch follows from its height: leaf, spine, core, tier-4
    and so on. A capacity block lies in the switch of its nodes.

    Raises:
        TreeInvalid: the file has another shape, exceeds a limit, or is no tree: a domain or a node in two others, a
            cycle, a name twice, a name without a definition.
    """
    if len(text) > MAX_BYTES:
        raise TreeInvalid(f"the file has {len(text)} bytes, the limit is {MAX_BYTES}")
    try:
        model = documents.decode(text, Model, MAX_VALUES)
    except ValidationError as error:
        raise TreeInvalid(f"the file has another shape: {error}") from error
    except documents.InvalidYAML as error:
        line = _LINE.search(str(error))
        raise TreeInvalid(f"the file is no YAML or JSON within the limits{f': {line[0]}' if line else ''}") from error
    branches = [*_domains(model.domains), *named_domains(model)]
    if not branches:
        raise TreeInvalid("the file has no `domains`, no `switches` and no blocks")
    return hypernodes(branches)


def discover(text: bytes, nodes: Collection[str]) -> FabricDiscovery:
    """Return the HyperNodes of a tree file, and how many of its nodes are among `nodes`.

    Raises:
        TreeInvalid: as parse.
    """
    found = parse(text)
    members = (member.name for hypernode in found for member in hypernode.members if member.kind == "Node")
    return FabricDiscovery(found, hosts=MatchedHosts.of(members, frozenset(nodes)))


def _domains(roots: Sequence[TreeFileDomain]) -> Iterator[NamedDomain]:
    nodes = NodeNames()
    pending = [*reversed(roots)]
    number = 0
    while pending:
        domain = pending.pop()
        where = f"domain number {number}"
        number += 1
        children = tuple(child.name for child in domain.domains)
        yield NamedDomain(domain.name, where, domain.level, nodes.unfold(domain.nodes, where), children)
        pending += reversed(domain.domains)
