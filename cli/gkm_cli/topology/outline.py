"""A tree without the domains that a node has for itself, as nested values: what people and programs read. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.trees.names import hypernode_name
from gkm.topology.trees.tree import Domain, Tree, nested


@dataclass(frozen=True, slots=True)
class Branch:
    """A domain: the nodes of the tree from index `first` up to `end`, some in `branches` and the others in `nodes`.

    `hypernode` is the name of its HyperNode, `switch` that of the switch that names it, for people; "" without one.
    """

    level: str
    name: str
    switch: str
    hypernode: str
    first: int
    end: int
    nodes: tuple[int, ...]
    branches: tuple["Branch", ...]

    @property
    def shown(self) -> str:
        """Return the domain for a person."""
        return f"{self.level} {self.name} ({self.switch})" if self.switch else f"{self.level} {self.name}"


class OutlineStep(NamedTuple):
    """A domain with the one that it is in. `lasts` states of it, and of all around it, whether it is the last one."""

    branch: Branch
    parent: Branch | None
    lasts: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The domains of the widest level, or the widest that each has, and the nodes that are in none."""

    branches: tuple[Branch, ...]
    nodes: tuple[int, ...]

    def walk(self, closest: str = "") -> Iterator[OutlineStep]:
        """Yield each domain, the outer one first; none that is closer than the level `closest`."""
        pending = [OutlineStep(branch, None, ()) for branch in reversed(self.branches)]
        while pending:
            step = pending.pop()
            yield step
            inner = step.branch.branches if step.branch.level != closest else ()
            pending += [OutlineStep(each, step.branch, (*step.lasts, each is inner[-1])) for each in reversed(inner)]


def outline(tree: Tree, settings: Topology, switches: Mapping[str, str] | None = None) -> Outline:
    """Return the outline of a tree; `switches` has names of switches by the names of domains."""
    hashed, names = settings.hyper_nodes.hash_names, switches or {}

    def branch(domain: Domain, inside: list[Branch | int]) -> Branch:
        level = tree.levels[domain.level]
        return Branch(
            level,
            domain.name,
            names.get(domain.name, ""),
            hypernode_name(level, domain.name, domain.identity, tree.levels, hashed=hashed),
            domain.first,
            domain.end,
            *_parted(inside),
        )

    leaves: Iterable[tuple[int, Branch | int]] = enumerate(range(len(tree.nodes)))
    nodes, outer = _parted(nested(tree, leaves, branch))
    return Outline(outer, nodes)


def _parted(units: list[Branch | int]) -> tuple[tuple[int, ...], tuple[Branch, ...]]:
    """Return the nodes and the branches among units."""
    nodes = tuple([unit for unit in units if isinstance(unit, int)])
    return nodes, tuple([unit for unit in units if isinstance(unit, Branch)])
