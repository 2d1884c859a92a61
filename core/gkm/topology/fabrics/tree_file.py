"""A tree of domains from a file that people or programs write, in YAML or JSON, as HyperNodes. Pure.

Two kinds are read. Ours has `domains`, each with its `level`, its `nodes` and the `domains` in it. Names of nodes may
be ranges: `gpu-[001-018]`. Fields that describe no tree are ignored. The models of topograph have switches with their
nodes, and the NVLink domains in them, in three shapes. Before v1.0.0, `capacity_blocks` are the NVLink domains, in
lists or in mappings. Since then `blocks` name the switch of their nodes, and an annotation names the NVLink domain;
switches hand annotations down, and a switch without fields stands only where its parent names it. The newest shape
becomes the one before.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta, Struct, ValidationError, field

from gkm.api import documents, node_names
from gkm.api.topology_settings import LevelName
from gkm.topology.fabrics.domain_tree import MAX_DEPTH, NamedDomain, TreeInvalid, hypernodes
from gkm.topology.fabrics.network import FabricDiscovery, MatchedHosts
from gkm.topology.hypernodes import HyperNode

MAX_BYTES = 4 << 20
MAX_VALUES = 1 << 17
"""Limit of YAML values: 100,000 nodes listed one by one."""
_LINE = re.compile(r"line \d{1,9}")
MAX_NODES = 200_000
BLOCK_LEVEL = "nvlink"


class _Entry(Struct):
    name: str = ""


T = TypeVar("T", bound=_Entry)


class _Annotations(Struct):
    domain: str = field(default="", name="accelerator.topology.test/domain")
    sub_domain: str = field(default="", name="accelerator.topology.test/sub-domain")


class _Switch(_Entry):
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    capacity_blocks: tuple[str, ...] = ()
    annotations: _Annotations | None = None


class _CapacityBlock(_Entry):
    nodes: tuple[str, ...] = ()


class _Node(_Entry):
    capacity_block: str = ""


class _Block(Struct):
    """A block of the newest shape: nodes of one switch, or of no switch."""

    nodes: Annotated[tuple[str, ...], Meta(min_length=1)]
    switch: str = ""
    annotations: _Annotations | None = None


class TopographModel(Struct):
    """A topology file of topograph. Older files have lists in place of mappings."""

    switches: dict[str, _Switch | None] | list[_Switch] = field(default_factory=dict)
    capacity_blocks: dict[str, _CapacityBlock | None] | list[_CapacityBlock] = field(default_factory=dict)
    nodes: dict[str, _Node | None] | list[_Node] = field(default_factory=dict)
    blocks: list[_Block] = field(default_factory=list)


class NodeNames:
    """Expands ranges of node names; the number of names in a file is bounded."""

    def __init__(self) -> None:
        self._remaining = MAX_NODES

    def unfold(self, texts: Iterable[str], where: str) -> tuple[str, ...]:
        """Return the node names in texts such as `gpu-[001-018]`, in lower case.

        Raises:
            TreeInvalid: a text holds no names, or too many.
        """
        found: list[str] = []
        for number, text in enumerate(texts):
            try:
                names = node_names.unfold(text.lower(), self._remaining)
            except node_names.NamesUnreadable as error:
                raise TreeInvalid(f"{where}: nodes[{number}] holds no names of nodes, or too many") from error
            self._remaining -= len(names)
            found += names
        return tuple(found)


def named_domains(model: TopographModel) -> Iterator[NamedDomain]:
    """Yield the domains of a topograph file as named domains.

    Raises:
        TreeInvalid: the model has two shapes at once, a block names no switch, or no block places its nodes.
    """
    if model.blocks and (model.capacity_blocks or model.nodes or isinstance(model.switches, list)):
        raise TreeInvalid(
            "beside `blocks`, the file has `capacity_blocks`, `nodes` or a list of switches: an older shape"
        )
    names = NodeNames()
    older = _older(model) if model.blocks else model
    blocks: dict[str, list[str]] = {}
    where_of: dict[str, str] = {}
    for number, (name, block) in enumerate(_named(older.capacity_blocks, _CapacityBlock())):
        where_of[name] = f"capacity_blocks[{number}]"
        blocks[name] = [*names.unfold(block.nodes, where_of[name])]
    for number, (name, node) in enumerate(_named(older.nodes, _Node())):
        if node.capacity_block:
            where_of.setdefault(node.capacity_block, f"the block of nodes[{number}]")
            blocks.setdefault(node.capacity_block, []).append(name.lower())
    block_of = {node: name for name, members in blocks.items() for node in members}
    for number, (name, switch) in enumerate(_named(older.switches, _Switch())):
        where = f"switches[{number}]"
        direct: list[str] = []
        within = dict.fromkeys(switch.capacity_blocks)
        for member in names.unfold(switch.nodes, where):
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


class _Accelerator(NamedTuple):
    """An NVLink domain by its annotations. A domain with sub-domains is divided: switches divide it as well."""

    domain: str
    sub_domain: str

    @property
    def shown(self) -> str:
        return f"{self.domain}-{self.sub_domain}" if self.sub_domain else self.domain


def _older(model: TopographModel) -> TopographModel:
    """Return a model of the newest shape in the shape before."""
    switches = dict(_named(model.switches, _Switch()))
    switches = {child: _Switch() for switch in switches.values() for child in switch.switches} | switches
    paths = _Paths(switches)
    direct: dict[str, list[str]] = defaultdict(list)
    around: dict[_Accelerator, list[str]] = defaultdict(list)
    members: dict[_Accelerator, list[str]] = defaultdict(list)
    for block, nodes in zip(model.blocks, _nodes_of_blocks(model.blocks, switches), strict=True):
        accelerator = paths.accelerator(block)
        if accelerator.domain:
            around[accelerator].append(block.switch)
            members[accelerator] += nodes
        else:
            direct[block.switch] += nodes
    if not members and not direct.keys() - {""}:
        raise TreeInvalid("the file has no block with a switch or an accelerator domain, so it places no node")
    names = _names(members, switches)
    within: dict[str, list[str]] = defaultdict(list)
    for accelerator, beside in around.items():
        within[paths.common(beside)].append(names[accelerator])
    return TopographModel(
        {
            name: _Switch(switches=switch.switches, nodes=tuple(direct[name]), capacity_blocks=tuple(within[name]))
            for name, switch in switches.items()
        },
        {names[accelerator]: _CapacityBlock(nodes=tuple(nodes)) for accelerator, nodes in members.items()},
    )


def _nodes_of_blocks(blocks: list[_Block], switches: Mapping[str, _Switch]) -> list[tuple[str, ...]]:
    """Return the nodes of each block.

    Raises:
        TreeInvalid: a node is in two blocks, or a block names a switch that does not exist.
    """
    names = NodeNames()
    found: dict[str, int] = {}
    listed = []
    for number, block in enumerate(blocks):
        where = f"blocks[{number}]"
        if block.switch and block.switch not in switches:
            raise TreeInvalid(f"{where} names a switch that is not in `switches` or below a switch in it")
        members = names.unfold(block.nodes, where)
        for position, node in enumerate(members):
            if found.setdefault(node, number) != number:
                raise TreeInvalid(f"node number {position} of {where} is in blocks[{found[node]}] already")
        listed.append(members)
    return listed


class _Paths:
    """The switches above each switch. Paths end after MAX_DEPTH switches: a longer one is refused later."""

    def __init__(self, switches: Mapping[str, _Switch]) -> None:
        self._switches = switches
        self._parents = {child: name for name, switch in switches.items() for child in switch.switches}

    def accelerator(self, block: _Block) -> _Accelerator:
        """Return what the block, or else the closest switch, names."""
        annotated = [block.annotations, *(self._switches[name].annotations for name in self._up(block.switch))]
        known = [each for each in annotated if each]
        domain = next((each.domain for each in known if each.domain), "")
        return _Accelerator(domain, next((each.sub_domain for each in known if each.sub_domain), ""))

    def common(self, names: list[str]) -> str:
        """Return the closest switch above all of these, which may be one of them; "" without a common switch."""
        distinct = list(dict.fromkeys(names))
        others = [frozenset(self._up(name)) for name in distinct[1:]]
        return next((name for name in self._up(distinct[0]) if all(name in other for other in others)), "")

    def _up(self, name: str) -> list[str]:
        found: list[str] = []
        while name and len(found) <= MAX_DEPTH:
            found.append(name)
            name = self._parents.get(name, "")
        return found


def _names(accelerators: Iterable[_Accelerator], switches: Iterable[str]) -> Mapping[_Accelerator, str]:
    """Return a name for each NVLink domain: its own, with a digest where a switch or another domain has it too."""
    listed = list(accelerators)
    used = Counter([*switches, *(each.shown for each in listed)])
    return {each: each.shown if used[each.shown] == 1 else _with_digest(each) for each in listed}


def _with_digest(accelerator: _Accelerator) -> str:
    digest = sha256("/".join(accelerator).encode()).hexdigest()[:8]
    return f"{accelerator.shown}-{digest}"


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
