"""The plan of the smallest keys, as in `reading`, where spares must leave and nodes are in several scopes."""

from collections.abc import Iterable
from typing import NamedTuple

from gkm.packing.domains.cover import Cell
from gkm.packing.domains.options import WHOLE, Option
from gkm.packing.domains.overlapping import Costed, States
from gkm.packing.domains.reading import Taken


class _Step(NamedTuple):
    before: Cell
    taken: Cell
    option: Option
    after: Cell


def read_states(tables: States, starts: Iterable[Cell]) -> list[Taken]:
    """Return what each used domain takes, in order, from one of some states that cost equally little."""
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


def _steps(options: Iterable[Option], here: Costed, after: Costed, cell: Cell) -> Iterable[_Step]:
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
    less = *option.groups, *option.needs
    return (row, *(wanted - taken for wanted, taken in zip(cell[1:], less, strict=True)))


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
