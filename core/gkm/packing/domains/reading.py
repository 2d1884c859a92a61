"""The plan of the smallest keys among those of least cost, read back from the tables (calculus.md, Objective).

Of two plans that cost the same, the one comes first that uses the first domain in which they differ. Of those that use
the same domains, the one that has more groups in the first domain in which they differ, then the one whose last, short
group comes later.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from gkm.packing.domains.cover import Cell, Table, Tables
from gkm.packing.domains.options import WHOLE, Option
from gkm.packing.inventory import Integers

MAX_KEPT = 2_000_000
"""Moves that are worked out once for all cells, nine bytes each; those of other domains are as they are needed."""


class Taken(NamedTuple):
    """What a used domain takes: groups by axis, and the axis of the short last group, WHOLE without one."""

    domain: int
    groups: Cell
    short: int
    away: Cell = ()


class _Moves(NamedTuple):
    """Where options lead from some cells, a row for each cell: to which cell, and whether they can be taken there."""

    left: Integers
    allowed: Table


class _Offer(NamedTuple):
    """The options of a domain: where they lead from every cell, None where that is too much to keep, and costs."""

    options: Sequence[Option]
    moves: _Moves | None
    cost: Table


class _Steps(NamedTuple):
    """What a used domain can do in plans of least cost: from which cells, by which of its options, to which cells."""

    domain: int
    before: Integers
    option: Integers
    after: Integers


def read(tables: Tables, starts: Iterable[Cell]) -> list[Taken]:
    """Return what each used domain takes, in order, from one of some cells that cost equally little.

    A cell begins with its row: 0, or 1 + the axis on which the last group is to be placed.
    """
    shape = tables.unused.shape[1:]
    # Cells are numbered as they lie in memory; there are often hundreds from which a domain can go on.
    cells = np.unique(np.ravel_multi_index(tuple(np.array(list(starts)).T), shape))
    reached = np.zeros(prod(shape), dtype=np.bool_)
    offers = _offers(tables)
    found: list[_Steps] = []
    for number, domains in enumerate(tables.blocks):
        entering = cells[tables.unused[number].reshape(-1)[cells] == tables.paid[number].reshape(-1)[cells]]
        if not len(entering):
            continue
        cells = entering
        rows = tables.within(number).reshape(len(domains) + 1, -1)
        for place, domain in enumerate(domains):
            if not tables.options[domain]:
                continue
            offer = offers[id(tables.options[domain])]
            before, option, after = _steps(tables, offer, rows[place], rows[place + 1], cells)
            if len(before):
                found.append(_Steps(domain, before, option, after))
                reached[after] = True
                cells = np.flatnonzero(reached)
                reached[cells] = False
    return _preferred(tables, found, cells, reached)


def _offers(tables: Tables) -> dict[int, _Offer]:
    """Return what domains offer, by the identity of their options."""
    shape = tables.unused.shape[1:]
    moves: dict[tuple[tuple[Cell, int], ...], _Moves] = {}
    found: dict[int, _Offer] = {}
    kept = 0
    for options in tables.options:
        if options and id(options) not in found:
            alike = tuple([(option.groups, option.short) for option in options])
            if alike not in moves and kept + len(options) * prod(shape) <= MAX_KEPT:
                kept += len(options) * prod(shape)
                moves[alike] = _moves(tables, options, np.arange(prod(shape)))
            cost = np.array([option.cost for option in options], dtype=tables.unused.dtype)
            found[id(options)] = _Offer(options, moves.get(alike), cost)
    return found


def _moves(tables: Tables, options: Sequence[Option], cells: Integers) -> _Moves:
    shape = tables.unused.shape[1:]
    short = np.array([option.short + 1 if option.short != WHOLE else 0 for option in options], dtype=np.int64)
    size = prod(shape[1:])
    row = (cells // size)[:, None]
    # The short group is placed by an option of its row, which leaves row 0; other options stay in the row.
    left = np.where(short == 0, row, 0) * size
    for axis, length in enumerate(shape[1:]):
        size //= length
        groups = np.array([option.groups[axis] for option in options], dtype=np.int64)
        held = (cells // size % length)[:, None]
        # Whole groups leave the short one its place (cover.py).
        least = np.minimum(held, (short == 0) & (row == 1 + axis) & tables.reserves_short)
        left += np.maximum(held - groups, least) * size
    return _Moves(left, (short == 0) | (short == row))


def _steps(
    tables: Tables, offer: _Offer, here: Table, after: Table, cells: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return (cell before, number of the option, cell after) of whatever keeps to the least cost."""
    if offer.moves is None:
        left, allowed = _moves(tables, offer.options, cells)
    else:
        left, allowed = offer.moves.left[cells], offer.moves.allowed[cells]
    before, option = ((here[cells][:, None] == after[left] + offer.cost) & allowed).nonzero()
    return cells[before], option, left[before, option]


def _preferred(tables: Tables, found: list[_Steps], ends: Integers, reached: Table) -> list[Taken]:
    # Backwards first: a step counts only if the domains after it, all of which are used, can follow from it.
    for number in range(len(found) - 1, -1, -1):
        steps = found[number]
        reached[ends] = True
        follow = reached[steps.after]
        reached[ends] = False
        found[number] = _Steps(steps.domain, steps.before[follow], steps.option[follow], steps.after[follow])
        ends = found[number].before
    shape = tables.unused.shape[1:]
    taken: list[Taken] = []
    at: int | None = None
    for domain, before, option, after in found:
        here = range(len(before)) if at is None else np.flatnonzero(before == at).tolist()
        choices = [
            (_cell(int(before[index]), shape), _cell(int(after[index]), shape), tables.options[domain][option[index]])
            for index in here
        ]
        cell, left, chosen = max(choices, key=_preference)
        taken.append(Taken(domain, _groups(cell, left), chosen.short))
        at = int(np.ravel_multi_index(left, shape))
    return taken


def _cell(number: int, shape: Cell) -> Cell:
    found = []
    for size in reversed(shape):
        number, at = divmod(number, size)
        found.append(at)
    return tuple(reversed(found))


def _groups(cell: Cell, left: Cell) -> Cell:
    return tuple(before - after for before, after in zip(cell[1:], left[1:], strict=True))


def _preference(choice: tuple[Cell, Cell, Option]) -> tuple[int, Cell, bool, Cell]:
    cell, left, option = choice
    groups = _groups(cell, left)
    return sum(groups), groups, option.short == WHOLE, cell
