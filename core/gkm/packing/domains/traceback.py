"""The plan of the smallest keys among those of least cost, read back from the tables (calculus.md, Objective).

Of two plans that cost the same, the one comes first that uses the first domain in which they differ. Of those that use
the same domains, the one that has more groups in the first domain in which they differ, then the one whose last, short
group comes later. So all cells that plans of least cost pass are followed: forward to the domains that are used, then
backward to drop what leads to none of these plans, and forward again to choose among what remains.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.knapsack import DOMAIN_AREA, Cell, DomainOption, Filled, Tables
from gkm.packing.inventory import Integers


class DomainChoice(NamedTuple):
    """What a used domain takes: whole groups, their axis, and whether the short last group is there beside them."""

    domain: int
    groups: int
    axis: int
    short: bool


class _Steps(NamedTuple):
    """What a used domain does in plans of least cost: from which cells, by which of its options, to which cells."""

    domain: int
    before: Integers
    option: Integers
    after: Integers


def read(tables: Tables, starts: Iterable[Cell]) -> list[DomainChoice]:
    """Return what each used domain takes, in order, from one of some cells that cost equally little."""
    # Cells are numbered as they lie in memory; there are often hundreds from which a domain can go on.
    cells = np.unique(np.ravel_multi_index(tuple(np.array(list(starts)).T), tables.problem.shape)).astype(np.int64)
    found: list[_Steps] = []
    ends = _forward(tables, tables.filled, cells, found)
    _prune(found, ends, prod(tables.problem.shape))
    return _chosen(tables, found)


def _forward(tables: Tables, parts: Sequence[Filled], cells: Integers, found: list[_Steps]) -> Integers:
    """Follow plans that use a part wherever one of them can; add their steps, return the cells after the last part."""
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
        return left, np.ones(len(cells), dtype=np.int64).astype(np.bool_)
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
