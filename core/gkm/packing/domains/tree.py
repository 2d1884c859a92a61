"""Domains as a tree of regions, clusters and blocks, each with what a plan pays once for it (calculus.md, Method).

Of domains that are alike in one block a plan of the smallest keys uses the first, and of blocks, clusters and regions
that are alike: so enough of each kind are in the tree, and a million domains of one GPU are few.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple


class Area(NamedTuple):
    """Areas or domains (their numbers), in the order of their keys, that are paid for together."""

    cost: int
    parts: "tuple[Part, ...]"


Part = Area | int


class AreaLevel(NamedTuple):
    """A level of the tree: the number of each domain's area, and what an area costs."""

    numbers: Sequence[int]
    cost: int


class Symmetry(NamedTuple):
    """What is needed of things that are alike: the kind of each domain, and the most of its kind in one block.

    No more than `areas` are needed of areas that are alike. Domains that are `forced` are all needed.
    """

    kinds: Sequence[Hashable]
    most: Sequence[int]
    areas: int
    forced: frozenset[int] = frozenset()


def tree(domains: Sequence[int], levels: Sequence[AreaLevel], alike: Symmetry | None = None) -> tuple[Part, ...]:
    """Return the tree of some domains, whose keys rise; `levels` from the top down, without the domains."""
    return _parts(domains, levels, alike)[0]


def _parts(
    domains: Sequence[int], levels: Sequence[AreaLevel], alike: Symmetry | None
) -> tuple[tuple[Part, ...], Hashable, bool]:
    """Return parts, what they are alike in, and whether one of them is forced."""
    if not levels:
        return _enough(domains, alike)
    level, found, kinds = levels[0], list[Part](), list[Hashable]()
    seen: Counter[Hashable] = Counter()
    any_forced = False
    for _, members in groupby(domains, key=level.numbers.__getitem__):
        parts, kind, forced = _parts(list(members), levels[1:], alike)
        any_forced |= forced
        seen[kind] += 1
        if alike is None or forced or seen[kind] <= alike.areas:
            found.append(_area(level.cost, parts))
            kinds.append(kind)
    return tuple(found), tuple(kinds), any_forced


def _area(cost: int, parts: tuple[Part, ...]) -> Area:
    """Return an area; one of a single area costs what both cost."""
    if len(parts) == 1 and isinstance(parts[0], Area):
        return Area(cost + parts[0].cost, parts[0].parts)
    return Area(cost, parts)


def _enough(domains: Sequence[int], alike: Symmetry | None) -> tuple[tuple[Part, ...], Hashable, bool]:
    if alike is None:
        return tuple(domains), None, False
    used: Counter[Hashable] = Counter()
    found: list[int] = []
    for domain in domains:
        kind = alike.kinds[domain]
        used[kind] += 1
        if used[kind] <= alike.most[domain] or domain in alike.forced:
            found.append(domain)
    return tuple(found), tuple([alike.kinds[at] for at in found]), any(at in alike.forced for at in found)
