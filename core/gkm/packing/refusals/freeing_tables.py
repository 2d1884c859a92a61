"""A knapsack over rows of choices: the fewest nodes that give so many groups (calculus.md, When it does not fit)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gkm.packing.inventory import Integers

MAX_STEPS = 150_000_000
MAX_KEPT = 8_000_000
"""Numbers that are gone through, and that are kept to read the answer back: half a second, and 64 MiB."""

_NODE = 1 << 32
_IMPOSSIBLE = 1 << 60


class Choice(NamedTuple):
    """What freeing some nodes gives: groups and slots more. `short` says that the short last group is one of them."""

    groups: int
    nodes: int
    slots: int
    short: bool


Rows = Sequence[Sequence[Choice]]


class Cell(NamedTuple):
    """Which entry of a table: with the short group or without, at least so many groups, at most so many nodes."""

    short: int
    groups: int
    nodes: int


class Tables:
    """Least costs after each row, one choice of each row or none.

    With `nodes` 0 the cost is nodes, then slots (more of them cost less). Else nodes are an axis of the table, and the
    cost is slots alone, so that how many slots any number of nodes can give is known.
    """

    def __init__(self, rows: Rows, groups: int, *, nodes: int, short: bool) -> None:
        self._rows = rows
        self._nodes = nodes
        self._groups = groups
        first = np.full((2 if short else 1, groups + 1, nodes + 1), _IMPOSSIBLE, dtype=np.int64)
        first[0, 0, :] = 0
        self._after = [first]
        for choices in rows:
            self._after.append(self._next(self._after[-1], choices))

    def outcome(self, cell: Cell) -> tuple[int, int] | None:
        """Return (nodes, slots) of the best way to a cell, None where there is none. With an axis, nodes are 0."""
        cost = int(self._after[-1][cell])
        if cost >= _IMPOSSIBLE // 2:
            return None
        nodes = -(-cost // _NODE)
        return nodes, nodes * _NODE - cost

    def least(self, short: int, groups: int, slots: int) -> Cell | None:
        """Return the cell with the fewest nodes that gives so many groups and slots; for tables with nodes as axis."""
        enough = np.flatnonzero(self._after[-1][short, groups] <= -slots)
        return Cell(short, groups, int(enough[0])) if len(enough) else None

    def read(self, cell: Cell) -> Iterator[tuple[int, Choice]]:
        """Yield the rows from which something is taken, the last one first, with what it is."""
        for number in range(len(self._rows) - 1, -1, -1):
            cost = self._after[number + 1][cell]
            if cost == self._after[number][cell]:
                continue
            for choice in self._rows[number]:
                before = self._before(cell, choice)
                if before is not None and self._after[number][before] + self._price(choice) == cost:
                    yield number, choice
                    cell = before
                    break

    def _price(self, choice: Choice) -> int:
        return (0 if self._nodes else choice.nodes * _NODE) - choice.slots

    def _before(self, cell: Cell, choice: Choice) -> Cell | None:
        nodes = cell.nodes - (choice.nodes if self._nodes else 0)
        if nodes < 0 or (choice.short and not cell.short):
            return None
        return Cell(0 if choice.short else cell.short, max(0, cell.groups - choice.groups), nodes)

    def _next(self, before: Integers, choices: Sequence[Choice]) -> Integers:
        after = before.copy()
        for choice in choices:
            shift = choice.nodes if self._nodes else 0
            if shift > self._nodes:
                continue
            source = before[:1] if choice.short else before
            target = after[1:] if choice.short else after
            held, price = min(choice.groups, self._groups), self._price(choice)
            source = source[:, :, : self._nodes + 1 - shift]
            upper, lower = target[:, held:, shift:], target[:, :held, shift:]
            np.minimum(upper, source[:, : self._groups + 1 - held] + price, out=upper)
            np.minimum(lower, source[:, :1] + price, out=lower)
        return after


def affordable(rows: Rows, groups: int, *, nodes: int, short: bool) -> bool:
    """Return whether tables of this size are made in half a second."""
    size = (groups + 1) * (nodes + 1) * (2 if short else 1)
    return sum(map(len, rows)) * size <= MAX_STEPS and (len(rows) + 1) * size <= MAX_KEPT
