"""The plan of the smallest keys among those of least cost, read back from the tables (calculus.md, Objective).

Of two plans that cost the same, the one comes first that uses the first domain in which they differ. Of those that use
the same domains, the one that has more groups in the first domain in which they differ, then the one whose last, short
group comes later.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gkm.packing.cover import Cell, Table, Tables
from gkm.packing.options import WHOLE, Option
from gkm.packing.overlapping import Costed, States


class Taken(NamedTuple):
    """What a used domain takes: groups by axis, and the axis of the short last group, WHOLE without one."""

    domain: int
    groups: Cell
    short: int
    away: Cell = ()


class _Step(NamedTuple):
    before: Cell
    taken: Cell
    option: Option
    after: Cell


def read(tables: Tables | States, starts: Iterable[Cell]) -> list[Taken]:
    """Return what each used domain takes, in order, from one of some cells that cost equally little.

    A cell begins with its row: 0, or 1 + the axis on which the last group is to be placed.
    """
    found: list[tuple[int, list[_Step]]] = []
    cells = set(starts)
    for number, domains in enumerate(tables.blocks):
        here = tables.unused[number]
        entering = {cell for cell in cells if here[cell] == tables.paid[number][cell]}
        if not entering:
            continue
        cells = entering
        rows = tables.within(number)
        for place, domain in enumerate(domains):
            offered = tables.options[domain]
            steps = [step for cell in cells for step in _steps(offered, rows[place], rows[place + 1], cell)]
            if steps:
                found.append((domain, steps))
                cells = {step.after for step in steps}
    return _preferred(found, cells)


def _steps(options: Iterable[Option], here: Table | Costed, after: Table | Costed, cell: Cell) -> Iterable[_Step]:
    for option in options:
        left = _left(cell, option)
        if left is not None and here[cell] == after[left] + option.cost:
            axes = slice(1, 1 + len(option.groups))
            taken = tuple(before - now for before, now in zip(cell[axes], left[axes], strict=True))
            yield _Step(cell, taken, option, left)


def _left(cell: Cell, option: Option) -> Cell | None:
    row = cell[0]
    if option.short != WHOLE:
        if row != 1 + option.short:
            return None
        row = 0
    if option.needs:
        less = *option.groups, *option.needs
        return (row, *(wanted - taken for wanted, taken in zip(cell[1:], less, strict=True)))
    return (row, *(max(0, wanted - taken) for wanted, taken in zip(cell[1:], option.groups, strict=True)))


def _preferred(found: list[tuple[int, list[_Step]]], ends: set[Cell]) -> list[Taken]:
    # Backwards first: a step counts only if the domains after it, all of which are used, can follow from it.
    for number in range(len(found) - 1, -1, -1):
        domain, steps = found[number]
        found[number] = (domain, [step for step in steps if step.after in ends])
        ends = {step.before for step in found[number][1]}
    taken: list[Taken] = []
    at: Cell | None = None
    for domain, steps in found:
        step = max((step for step in steps if at is None or step.before == at), key=_preference)
        taken.append(Taken(domain, step.taken, step.option.short, step.option.away))
        at = step.after
    return taken


def _preference(step: _Step) -> tuple[int, Cell, bool, Cell, Cell]:
    return sum(step.taken), step.taken, step.option.short == WHOLE, step.before, step.option.away
