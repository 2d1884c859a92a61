"""The tree knapsack: the least cost of placing so many groups, for every number of them (calculus.md, Method).

A cell of a table is a number of whole groups on each axis (one axis for each ceiling that binds, and one for the rest);
its value is the least cost of placing AT LEAST so many. That is exact: to take fewer groups never costs more. The short
last group is counted beside the whole ones: a table has a row for "it is placed", and one for each axis for "it is
still to be placed, on that axis"; so whole groups never take its place.

Parts of the tree are gone through from the last to the first. An area is either left aside or paid for; what is in it
is added to what follows it with its cost. All tables stay, for the traceback.

A plan of the smallest keys uses the first of the domains that are alike in one block, and the first of the blocks,
clusters and regions that are alike. So enough of each kind are in the tree, and a million domains of one GPU are few.

If two plans cost the same, the traceback takes the plan that uses the first domain in which they differ. If they use
the same domains, it takes the plan with more groups in the first domain in which they differ, then the plan whose last,
short group comes later.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.inventory import Integers
from gkm.packing.values import TooLargeError


class Area(NamedTuple):
    """An area of the tree with its parts, or a domain by number; the cost of an area is paid once for all its parts.

    An area with a domain that is `forced` cannot be left aside.
    """

    cost: int
    parts: "tuple[Part, ...]"
    forced: bool = False


Part = Area | int


class AreaLevel(NamedTuple):
    """A level of the tree: the area number of each domain, and the cost of using an area."""

    numbers: Sequence[int]
    cost: int


class Symmetry(NamedTuple):
    """What is needed to leave out equivalent domains: their kind, and how many of a kind can be used in one block.

    No more than `areas` are needed of areas that are alike. Domains that are `forced` are all needed.
    """

    kinds: Sequence[Hashable]
    most: Sequence[int]
    areas: int
    forced: frozenset[int] = frozenset()


class Tree(NamedTuple):
    """A tree of parts, the properties that they share, and whether a part is forced."""

    parts: tuple[Part, ...]
    kind: Hashable
    forced: bool


def tree(domains: Sequence[int], levels: Sequence[AreaLevel], alike: Symmetry) -> Tree:
    """Build the tree of sorted domains; `levels` go from the widest to the closest, without the domains."""
    seen: Counter[Hashable] = Counter()
    found, kinds, any_forced = list[Part](), list[Hashable](), False
    for part, kind, forced, most in _parts(domains, levels, alike):
        any_forced |= forced
        seen[kind] += 1
        if forced or seen[kind] <= most:
            found.append(part)
            kinds.append(kind)
    return Tree(tuple(found), tuple(kinds), any_forced)


def _parts(
    domains: Sequence[int], levels: Sequence[AreaLevel], alike: Symmetry
) -> Iterator[tuple[Part, Hashable, bool, int]]:
    """Yield the parts of a level, what each is alike in, whether it is forced, and how many such are needed."""
    if not levels:
        for domain in domains:
            yield domain, alike.kinds[domain], domain in alike.forced, alike.most[domain]
        return
    for _, members in groupby(domains, key=levels[0].numbers.__getitem__):
        parts, kind, forced = tree(list(members), levels[1:], alike)
        yield _area(levels[0].cost, parts, forced=forced), kind, forced, alike.areas


def _area(cost: int, parts: tuple[Part, ...], *, forced: bool) -> Area:
    """Return an area; an area with a single inner area has the costs of both."""
    if len(parts) == 1 and isinstance(parts[0], Area):
        cost, parts = cost + parts[0].cost, parts[0].parts
    return Area(cost, parts, forced)


MAX_CELLS = 25_000_000
"""Limit of stored costs, at eight bytes each: 200 MB."""
MAX_STEPS = 300_000_000
"""Limit of table cells over all options: about a second of work."""
DOMAIN_AREA = -1

INT64_BITS = 62
"""Limit of bits of a cost, so that the sum of two costs fits into int64."""

# int64, or Python's integers where 64 bits do not suffice.
Table = NDArray[Any]
Cell = tuple[int, ...]


class DomainOption(NamedTuple):
    """An option of a domain: up to a number of whole groups on one axis, with or without the short last group."""

    groups: int
    cost: int
    axis: int = 0
    short: bool = False


class Filled(NamedTuple):
    """A filled table: the smallest costs from one part of the tree on.

    `here` are least costs from this part on. After a domain comes `follow`, and each of its options costs `extra` more;
    an area that is paid for has the costs `follow` of its first part.
    """

    domain: int
    here: Table
    follow: Table
    extra: int
    parts: "tuple[Filled, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The problem to solve: the options of each domain, and the largest number of whole groups on each axis.

    Domains that are `forced` take one of their options, which may have no groups beyond the uncounted ones. With
    `short` the last group is short, and there are options with it. Sums of costs are below `impossible`.
    """

    options: Sequence[Sequence[DomainOption]]
    parts: tuple[Part, ...]
    sizes: Cell
    impossible: int
    short: bool = False
    forced: frozenset[int] = frozenset()

    @property
    def shape(self) -> Cell:
        """Return the shape of a table: a row for each place of the short last group, then one size for each axis."""
        return (1 + len(self.sizes) if self.short else 1, *(size + 1 for size in self.sizes))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The smallest costs of a solved problem.

    A cell begins with its row: 0, or 1 + the axis of the short last group.
    """

    problem: Problem
    filled: tuple[Filled, ...]
    total: Table

    def least(self, cell: Cell) -> int:
        """Return the smallest cost of a cell of the tables; `impossible` or more if no plan exists."""
        return int(self.total[cell])


def solve(problem: Problem) -> Tables:
    """Compute the smallest costs of all cells of the tree knapsack.

    Raises:
        TooLargeError: the tables would take more memory or time than is given.
    """
    stored, steps = _sizes(problem.parts, problem.options)
    cells = prod(problem.shape)
    if cells * (stored + 1) > MAX_CELLS or cells * steps > MAX_STEPS:
        shown = " x ".join(str(size) for size in problem.sizes)
        raise TooLargeError(
            f"{shown} groups over {len(problem.options)} domains are more than can be planned exactly; ask for larger "
            "groups, a smaller run or fewer scopes with ceilings"
        )
    kind: Any = np.int64 if problem.impossible <= 1 << INT64_BITS else object
    last = np.full(problem.shape, problem.impossible, dtype=kind)
    last[(0,) * len(problem.shape)] = 0
    filled = _fill(problem, problem.parts, last)
    return Tables(problem, filled, filled[0].here if filled else last)


def _fill(problem: Problem, parts: Sequence[Part], follow: Table) -> tuple[Filled, ...]:
    found: list[Filled] = []
    for part in reversed(parts):
        if not isinstance(part, Area):
            found.append(_domain(problem, part, follow, 0))
        elif len(part.parts) == 1 and not isinstance(part.parts[0], Area):
            found.append(_domain(problem, part.parts[0], follow, part.cost))
        else:
            inner = _fill(problem, part.parts, follow + part.cost)
            paid = inner[0].here
            aside = problem.impossible if part.forced else follow
            found.append(Filled(DOMAIN_AREA, np.minimum(aside, paid), paid, 0, inner))
        follow = found[-1].here
    return tuple(reversed(found))


def _domain(problem: Problem, domain: int, follow: Table, extra: int) -> Filled:
    here = np.full_like(follow, problem.impossible) if domain in problem.forced else follow.copy()
    for groups, cost, axis, short in problem.options[domain]:
        if short:
            _lower(here[1 + axis : 2 + axis], follow[:1], 1 + axis, groups, cost + extra)
        else:
            _lower(here, follow, 1 + axis, groups, cost + extra)
    return Filled(domain, here, follow, extra, ())


def _lower(here: Table, follow: Table, axis: int, groups: int, cost: int) -> None:
    """Lower what is in `here` to the cost of taking up to so many groups of an axis, and what follows."""
    before = (slice(None),) * axis
    length = here.shape[axis]
    taken = min(groups, length - 1)
    more = here[(*before, slice(taken, None))]
    np.minimum(more, follow[(*before, slice(0, length - taken))] + cost, out=more)
    if taken:
        few = here[(*before, slice(0, taken))]
        np.minimum(few, follow[(*before, slice(0, 1))] + cost, out=few)


def _sizes(parts: Sequence[Part], options: Sequence[Sequence[DomainOption]]) -> tuple[int, int]:
    """Return how many tables are stored, and how many options are tried."""
    stored = steps = 0
    for part in parts:
        if isinstance(part, Area):
            more = _sizes(part.parts, options)
            stored, steps = stored + more[0] + 2, steps + more[1]
        else:
            stored, steps = stored + 1, steps + 1 + len(options[part])
    return stored, steps


class DomainChoice(NamedTuple):
    """The whole groups in a used domain, their axis, and whether the short last group is in the domain."""

    domain: int
    groups: int
    axis: int
    short: bool


class _Steps(NamedTuple):
    """The steps of a used domain in plans of least cost: from which cells, by which of its options, to which cells."""

    domain: int
    before: Integers
    option: Integers
    after: Integers


def read(tables: Tables, starts: Iterable[Cell]) -> list[DomainChoice]:
    """Return the groups of each used domain in a plan of smallest cost that starts from one of these cells."""
    # 1. All cells that plans of least cost pass are followed, forward to the domains that are used. Cells are numbered
    #    as they lie in memory; there are often hundreds from which a domain can go on.
    # 2. Backward, steps are dropped that do not lead to these plans.
    # 3. Forward again, each domain takes the step that is preferred.
    cells = np.unique(np.ravel_multi_index(tuple(np.array(list(starts)).T), tables.problem.shape)).astype(np.int64)
    found: list[_Steps] = []
    ends = _forward(tables, tables.filled, cells, found)
    _prune(found, ends, prod(tables.problem.shape))
    return _chosen(tables, found)


def _forward(tables: Tables, parts: Sequence[Filled], cells: Integers, found: list[_Steps]) -> Integers:
    """Follow plans that use a part where they can; add their steps, return the cells after the last part."""
    for part in parts:
        if part.domain == DOMAIN_AREA:
            entering = cells[part.here.reshape(-1)[cells] == part.follow.reshape(-1)[cells]]
            if len(entering):
                cells = _forward(tables, part.parts, entering, found)
            continue
        steps = _steps(tables, part, cells)
        if len(steps.before):
            found.append(steps)
            cells = np.unique(steps.after)
    return cells


def _steps(tables: Tables, part: Filled, cells: Integers) -> _Steps:
    shape = tables.problem.shape
    here, follow = part.here.reshape(-1)[cells], part.follow.reshape(-1)
    before, option, after = [], [], []
    for number, offered in enumerate(tables.problem.options[part.domain]):
        left, allowed = _successors(offered, cells, shape)
        taken = np.flatnonzero((here == follow[left] + (offered.cost + part.extra)) & allowed)
        before.append(cells[taken])
        option.append(np.full(len(taken), number))
        after.append(left[taken])
    if not before:
        return _Steps(part.domain, *[np.zeros(0, dtype=np.int64)] * 3)
    return _Steps(part.domain, np.concatenate(before), np.concatenate(option), np.concatenate(after))


def _successors(option: DomainOption, cells: Integers, shape: Cell) -> tuple[Integers, Integers]:
    """Return the cells to which an option leads, and whether it can be taken: the short group only where it is due."""
    stride = prod(shape[2 + option.axis :])
    counted = cells // stride % shape[1 + option.axis]
    left = cells - np.minimum(counted, option.groups) * stride
    if not option.short:
        return left, np.ones(len(cells), dtype=np.bool_)
    size = prod(shape[1:])
    due = cells // size == 1 + option.axis
    return np.where(due, left - (1 + option.axis) * size, 0), due


def _prune(found: list[_Steps], ends: Integers, cells: int) -> None:
    """Drop steps from which the domains after them, all of which are used, cannot follow."""
    reached = np.zeros(cells, dtype=np.bool_)
    for number in range(len(found) - 1, -1, -1):
        steps = found[number]
        reached[ends] = True
        follow = reached[steps.after]
        reached[ends] = False
        found[number] = _Steps(steps.domain, steps.before[follow], steps.option[follow], steps.after[follow])
        ends = found[number].before


def _chosen(tables: Tables, found: Sequence[_Steps]) -> list[DomainChoice]:
    shape = tables.problem.shape
    taken: list[DomainChoice] = []
    at: int | None = None
    for domain, before, option, after in found:
        options = tables.problem.options[domain]
        choices = []
        for index in range(len(before)) if at is None else np.flatnonzero(before == at).tolist():
            chosen = options[int(option[index])]
            stride, size = prod(shape[2 + chosen.axis :]), shape[1 + chosen.axis]
            groups = int(before[index]) // stride % size - int(after[index]) // stride % size
            preference = groups + chosen.short, not chosen.short, int(before[index]), int(after[index])
            choices.append((preference, DomainChoice(domain, groups, chosen.axis, chosen.short)))
        preference, step = max(choices)
        taken.append(step)
        at = preference[-1]
    return taken
