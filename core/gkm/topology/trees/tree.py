"""The tree of domains over all nodes, as a frozen value with integer indexes."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, TypeVar

import msgspec

from gkm.topology.quarantine import Quarantined
from gkm.topology.trees.nesting import Row

T = TypeVar("T")


class Domain(NamedTuple):
    """A domain: the nodes of the tree from index `first` to before `end`.

    `level` is an index of `Tree.levels`; `parent` an index of the domains of the next level, -1 at the widest level.
    `identity` differs between all domains of a level, also where names are unique within a parent only. A node that no
    provider places at a level has its `own` domain there.
    """

    level: int
    name: str
    identity: str
    parent: int
    first: int
    end: int
    own: bool = False


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A claim that is ignored because a more trusted provider contradicts it; `message` is for a person."""

    level: str
    provider: str
    message: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of domains: levels from the closest to the widest, nodes in order, and the domains of each level.

    Each node is in one domain of each level. Quarantined nodes are in no domain.
    """

    levels: tuple[str, ...]
    nodes: tuple[str, ...]
    domains: tuple[tuple[Domain, ...], ...]
    quarantined: tuple[Quarantined, ...] = ()
    contradictions: tuple[Contradiction, ...] = field(default=())

    def version(self) -> str:
        """Return the SHA-256 of the whole tree in hexadecimal; equal trees have equal versions."""
        return sha256(msgspec.json.encode(self)).hexdigest()


def arrange(
    levels: Sequence[str],
    nodes: Iterable[tuple[Row, Collection[str]]],
    quarantined: tuple[Quarantined, ...] = (),
    contradictions: tuple[Contradiction, ...] = (),
) -> Tree:
    """Return the tree of nodes with their claims, which must not contradict each other."""
    # Sorted from the widest level, the nodes of a domain are neighbors. Own domains come last.
    groups: dict[tuple[tuple[bool, str], ...], tuple[Row, list[str]]] = {}
    every = tuple(levels)
    for row, names in nodes:
        groups.setdefault(_path(every, row), (row, []))[1].extend(names)
    ordered = sorted(groups.items())
    domains: list[list[Domain]] = [[] for _ in levels]
    starts = [0] * len(levels)
    located: list[str] = []
    widest = len(levels) - 1

    def close(level: int, name: str, identity: str, own: bool) -> None:  # noqa: FBT001 -- called for every domain
        # A parent ends after its children: it will be the next domain of its level.
        parent = len(domains[level + 1]) if level < widest else -1
        end = len(located)
        domains[level].append(Domain(level, name, identity, parent, starts[level], end, own))
        starts[level] = end

    following = iter([*(key for key, _ in ordered[1:]), ()])
    for key, (row, names) in ordered:
        alone = 0 if row[0] else next((level for level, claim in enumerate(row) if claim), len(row))
        names.sort()
        if alone:
            for name in names:
                located.append(name)
                for level in range(alone):
                    close(level, "", own_identity("", name), True)  # noqa: FBT003
        else:
            located += names
        shared, other = 0, next(following)
        while shared < len(other) and key[shared] == other[shared]:
            shared += 1
        for level in range(alone, len(levels) - shared):
            claim = row[level]
            own, identity = key[widest - level]
            close(level, claim.name if claim else "", identity, own)
    every_level = tuple([tuple(each) for each in domains])
    return Tree(every, tuple(located), every_level, quarantined, contradictions)


def nested(tree: Tree, leaves: Iterable[tuple[int, T]], unit: Callable[[Domain, list[T]], T | None]) -> list[T]:
    """Build nested values from a tree: `unit` makes one from each domain and its parts, `leaves` has one for each node.

    `leaves` are indexes of nodes with what stands for each, in their order. `unit` makes of a domain, closer levels
    first, and of the units and leaves directly in it what stands for it; None leaves it out, with all that is in it. A
    node's own domains have no unit.
    """
    units = [(position + 1, leaf) for position, leaf in leaves]
    for domains in tree.domains:
        above: list[tuple[int, T]] = []
        start = 0
        for domain in domains:
            stop = start
            while stop < len(units) and units[stop][0] <= domain.end:
                stop += 1
            inside, start = units[start:stop], stop
            if domain.own:
                above += inside
            elif (made := unit(domain, [each for _, each in inside])) is not None:
                above.append((domain.end, made))
        units = above
    return [each for _, each in units]


@lru_cache(maxsize=1 << 15)
def _path(levels: tuple[str, ...], row: Row) -> tuple[tuple[bool, str], ...]:
    """Return whether the domain is an own one, and its identity, at each level from the widest one.

    An own domain is named after what it has: a domain of a closer level, or a node, whose name is left out here.
    """
    inner = ("", "")
    found: list[tuple[bool, str]] = []
    for level, claim in zip(levels, row, strict=True):
        if claim is not None:
            inner = (level, claim.identity)
            found.append((False, claim.identity))
        else:
            found.append((True, own_identity(*inner)))
    return tuple(found[::-1])


def own_identity(level: str, name: str) -> str:
    """Return the identity of the domain that a node, or a domain, forms alone at a level."""
    return f"{level}:{name}"
