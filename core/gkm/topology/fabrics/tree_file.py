"""A tree of domains from a file that people or programs write, in YAML or JSON, as HyperNodes. Pure.

Two shapes are read. The models of topograph have `switches` with the names of their switches and nodes, and
`capacity_blocks`, the NVLink domains, with their nodes. Ours has `domains`, each with its `level`, its `nodes` and the
`domains` in it. Names of nodes may be ranges: `gpu-[001-018]`. Fields that describe no tree are ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, ValidationError, field

from gkm.api import documents, node_names
from gkm.api.topology_settings import LevelName
from gkm.topology.fabrics.domain_tree import NamedDomain, TreeInvalid, hypernodes
from gkm.topology.hypernodes import HyperNode

MAX_BYTES = 4 << 20
MAX_VALUES = 1 << 17
"""Values of YAML: 100,000 nodes one by one. As ranges they take a hundredth of it."""
MAX_NODES = 200_000
BLOCK_LEVEL = "nvlink"
_LINE = re.compile(r"line \d{1,9}")


class TreeFileDomain(Struct):
    """A domain of our shape."""

    name: str
    level: LevelName
    nodes: tuple[str, ...] = ()
    domains: tuple["TreeFileDomain", ...] = ()


class _Entry(Struct):
    name: str = ""


T = TypeVar("T", bound=_Entry)


class _Switch(_Entry):
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    capacity_blocks: tuple[str, ...] = ()


class _Block(_Entry):
    nodes: tuple[str, ...] = ()


class _Node(_Entry):
    capacity_block: str = ""


class Model(Struct):
    """The file. Older models of topograph have lists in place of mappings."""

    domains: tuple[TreeFileDomain, ...] = ()
    switches: dict[str, _Switch | None] | list[_Switch] = field(default_factory=dict)
    capacity_blocks: dict[str, _Block | None] | list[_Block] = field(default_factory=dict)
    nodes: dict[str, _Node | None] | list[_Node] = field(default_factory=dict)


def parse(text: bytes) -> tuple[HyperNode, ...]:
    """Return the HyperNodes of a file, with the closest first; domains without nodes are left out.

    The level of a capacity block is `nvlink`, that of a switch follows from its height: leaf, spine, core, tier-4 and
    so on. A capacity block lies in the switch of its nodes.

    Raises:
        TreeInvalid: the file has another shape, exceeds a limit, or is no tree: a domain or a node in two others, a
            cycle, a name twice, a name that nothing defines.
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
    branches = [*_domains(model.domains), *_model(model)]
    if not branches:
        raise TreeInvalid("the file has no `domains`, no `switches` and no `capacity_blocks`")
    return hypernodes(branches)


def _domains(roots: Sequence[TreeFileDomain]) -> Iterator[NamedDomain]:
    nodes = _Nodes()
    pending = [*reversed(roots)]
    number = 0
    while pending:
        domain = pending.pop()
        where = f"domain number {number}"
        number += 1
        children = tuple(child.name for child in domain.domains)
        yield NamedDomain(domain.name, where, domain.level, nodes.unfold(domain.nodes, where), children)
        pending += reversed(domain.domains)


def _model(model: Model) -> Iterator[NamedDomain]:
    """Yield the branches of a model of topograph; a node of a block is a member of the block, not of the switch."""
    nodes = _Nodes()
    blocks: dict[str, list[str]] = {}
    where_of: dict[str, str] = {}
    for number, (name, block) in enumerate(_named(model.capacity_blocks, _Block())):
        where_of[name] = f"capacity_blocks[{number}]"
        blocks[name] = [*nodes.unfold(block.nodes, where_of[name])]
    for number, (name, node) in enumerate(_named(model.nodes, _Node())):
        if node.capacity_block:
            where_of.setdefault(node.capacity_block, f"the block of nodes[{number}]")
            blocks.setdefault(node.capacity_block, []).append(name)
    block_of = {node: name for name, members in blocks.items() for node in members}
    for number, (name, switch) in enumerate(_named(model.switches, _Switch())):
        where = f"switches[{number}]"
        direct: list[str] = []
        within = dict.fromkeys(switch.capacity_blocks)
        for member in nodes.unfold(switch.nodes, where):
            if member in block_of:
                within[block_of[member]] = None
            else:
                direct.append(member)
        yield NamedDomain(name, where, "", tuple(direct), (*switch.switches, *within))
    for name, members in blocks.items():
        yield NamedDomain(name, where_of[name], BLOCK_LEVEL, tuple(dict.fromkeys(members)), ())


def _named(entries: Mapping[str, T | None] | list[T], empty: T) -> Iterator[tuple[str, T]]:
    if isinstance(entries, list):
        yield from ((entry.name, entry) for entry in entries)
    else:
        yield from ((name, entry or empty) for name, entry in entries.items())


class _Nodes:
    """The names of nodes in ranges, of which a file has a bounded number."""

    def __init__(self) -> None:
        self._remaining = MAX_NODES

    def unfold(self, texts: Iterable[str], where: str) -> tuple[str, ...]:
        """Return the names in texts.

        Raises:
            TreeInvalid: a text holds no names, or too many.
        """
        found: list[str] = []
        for number, text in enumerate(texts):
            try:
                names = node_names.unfold(text, self._remaining)
            except node_names.NamesUnreadable as error:
                raise TreeInvalid(f"{where}: nodes[{number}] holds no names of nodes, or too many") from error
            self._remaining -= len(names)
            found += names
        return tuple(found)
