"""Convert named domains with their nodes and inner domains to HyperNodes, and check that they form a tree. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gkm.api.cliques import CLIQUE_LEVEL, names_clique
from gkm.topology.fabrics.leaf_groups import name_of
from gkm.topology.fabrics.levels import tier_name
from gkm.topology.hypernodes import HyperNode, Member

MAX_DEPTH = 64


class TreeInvalid(ValueError):
    """The domains do not form a tree, or exceed a limit; the message has a position, and no name from the source."""


class NamedDomain(NamedTuple):
    """A domain of the network as a source names it. `where` is its position in the text.

    An empty `level` follows from its height in the tree.
    """

    name: str
    where: str
    level: str
    nodes: tuple[str, ...]
    children: tuple[str, ...]


def hypernodes(branches: Sequence[NamedDomain]) -> tuple[HyperNode, ...]:
    """Return the domains that contain nodes as HyperNodes, the closest first.

    What is in a domain of level `nvlink` whose name stands for no clique is in the domain around that.

    Raises:
        TreeInvalid: a name is empty or comes twice, a node or a domain is in two others, a domain is not defined, lies
        in itself or in a domain of the same level, or is nested too deep.
    """
    by_name: dict[str, NamedDomain] = {}
    for branch in branches:
        if not branch.name or by_name.setdefault(branch.name, branch) is not branch:
            others = f"the name of {by_name[branch.name].where}" if branch.name else "no name"
            raise TreeInvalid(f"{branch.where} needs a unique name, and has {others}")
    parents = _parents(branches, by_name)
    _check_nodes(branches)
    found: list[HyperNode] = []
    ranks: dict[str, int] = {}
    heights: dict[str, int] = {}
    written: dict[str, Sequence[Member]] = {}
    for branch in _from_below(branches, by_name, parents):
        name = name_of(branch.name)
        ranks[branch.name] = 1 + max((ranks[child] for child in branch.children), default=0)
        below = [heights[child] for child in branch.children if child in heights]
        if not branch.level:
            heights[branch.name] = 1 + max(below, default=-1)
        if ranks[branch.name] > MAX_DEPTH:
            raise TreeInvalid(f"{branch.where} holds more than {MAX_DEPTH} levels")
        members = [Member("Node", node) for node in branch.nodes]
        for child in branch.children:
            members += written.get(child, ())
        if branch.level == CLIQUE_LEVEL and not names_clique(branch.name):
            written[branch.name] = members
        elif members:
            written[branch.name] = [Member("HyperNode", name)]
            level = branch.level or tier_name(heights[branch.name])
            found.append(HyperNode(name, level, tuple(sorted(members)), ranks[branch.name]))
    return tuple(sorted(found, key=lambda hypernode: (hypernode.tier, hypernode.name)))


def _parents(branches: Iterable[NamedDomain], by_name: Mapping[str, NamedDomain]) -> Mapping[str, str]:
    parents: dict[str, str] = {}
    for branch in branches:
        for number, name in enumerate(branch.children):
            child = by_name.get(name)
            if child is None:
                raise TreeInvalid(f"{branch.where}: the domain number {number} in it has no definition")
            if name in parents:
                raise TreeInvalid(f"{child.where} is in {by_name[parents[name]].where} and in {branch.where}")
            parents[name] = branch.name
            if child.level and child.level == branch.level:
                raise TreeInvalid(f"{child.where} has the level of {branch.where}, in which it is")
    return parents


def _check_nodes(branches: Iterable[NamedDomain]) -> None:
    found: dict[str, NamedDomain] = {}
    for branch in branches:
        for number, node in enumerate(branch.nodes):
            if node in found:
                raise TreeInvalid(f"node number {number} of {branch.where} is in {found[node].where} already")
            found[node] = branch


def _from_below(
    branches: Sequence[NamedDomain], by_name: Mapping[str, NamedDomain], parents: Mapping[str, str]
) -> Iterator[NamedDomain]:
    """Yield each branch after those in it."""
    pending = {branch.name: len(branch.children) for branch in branches}
    ready = deque(branch for branch in branches if not branch.children)
    while ready:
        branch = ready.popleft()
        del pending[branch.name]
        yield branch
        parent = parents.get(branch.name)
        if parent is not None:
            pending[parent] -= 1
            if not pending[parent]:
                ready.append(by_name[parent])
    if pending:
        raise TreeInvalid(f"{by_name[next(iter(pending))].where} lies in itself, or holds a domain that does")
