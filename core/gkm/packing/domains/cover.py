"""The tree knapsack: the least cost of placing so many groups, for every number of them (calculus.md, Method).

A cell of a table is a number of groups, or one number per axis where scopes have ceilings; its value is the least cost
of placing AT LEAST so many. That is exact: to take fewer groups never costs more. With a short last group a table has
a row for "the last is placed" and one per axis for "the last is still to be placed, on that axis".

In a row of the second kind the short group is one of those to place on its axis, so that axis never counts fewer than
one: its cell 0 holds the same cost as its cell 1. Without that, whole groups would take the place of the short one,
which then comes on top of them. Where domains are forced, a cell counts groups beyond what they have in any case, and
the short group may be one of those: there 0 is a number of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gkm.packing.domains.costs import Costs
from gkm.packing.domains.options import WHOLE, Option
from gkm.packing.inventory import Integers

MAX_CELLS = 25_000_000
"""What is kept, at eight bytes each: 200 MB."""
MAX_STEPS = 500_000_000
"""Cells of all domains together: a few seconds."""
MAX_ROWS = 2_000_000
"""Cells of the rows of all domains up to which they are kept: 16 MB."""

# int64, or Python's integers where 64 bits do not suffice (costs.py).
Table = NDArray[Any]
Cell = tuple[int, ...]


class TooLargeError(ValueError):
    """The problem is larger than what is solved exactly: its sizes, and what to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Least costs, from the last block and domain to the first.

    `unused[b]` counts the blocks from b on, and `paid[b]` the same with block b paid for, used or not. The rows of the
    domains are kept where that is little; else those of a block are made again when it is read, which few blocks are.
    Domains that are `forced` take one of their options.
    """

    options: Sequence[Sequence[Option]]
    blocks: Sequence[range]
    costs: Costs
    unused: Table
    paid: Table
    work: Table
    kept: bool
    forced: frozenset[int] = frozenset()

    def least(self, cell: Cell) -> int:
        """Return the least cost of a cell, `impossible` or more where nothing does it. A cell begins with its row."""
        return int(self.unused[(0, *cell)])

    def within(self, block: int) -> Table:
        """Return a row for each domain of a block and one more: least costs from that domain on, the block paid for.

        The rows last until the next call.
        """
        return self._rows(block) if self.kept else self.fill(block)

    def fill(self, block: int) -> Table:
        """Make the rows of a block, from what comes after it, and return them."""
        domains = self.blocks[block]
        rows = self._rows(block)
        np.add(self.unused[block + 1], self.costs.block, out=rows[-1])
        for number in range(len(domains) - 1, -1, -1):
            before, after, domain = rows[number + 1], rows[number], domains[number]
            after[...] = self.costs.impossible if domain in self.forced else before
            _take(before, self.options[domain], after, self.work[-1])
            if self.reserves_short:
                _reserve_short(after)
        return rows

    @property
    def reserves_short(self) -> bool:
        """Return whether an axis counts one group at least while the short group is to be placed on it."""
        return not self.forced

    def _rows(self, block: int) -> Table:
        domains = self.blocks[block]
        # Kept rows lie one after another, with one more for each block.
        first = domains.start + block if self.kept else 0
        rows: Table = self.work[first : first + len(domains) + 1]
        return rows


def cover(
    options: Sequence[Sequence[Option]],
    blocks: Sequence[range],
    costs: Costs,
    sizes: Cell,
    *,
    short: bool,
    forced: frozenset[int] = frozenset(),
) -> Tables:
    """Return the least costs of all cells up to `sizes`. `blocks` are runs of domains, in order, none empty.

    `short` says that the last group is short, and that there are options with it. Domains that are `forced` are not
    left aside: they take one of their options, which may be of no groups more than what is not counted here.

    Raises:
        TooLargeError: the tables would take more memory or time than is given.
    """
    rows = (1 + len(sizes) if short else 1, *(size + 1 for size in sizes))
    longest = max((len(domains) for domains in blocks), default=0)
    choices = sum(len(offered) for offered in options)
    if prod(rows) * (2 * len(blocks) + longest + 3) > MAX_CELLS or prod(rows) * choices > MAX_STEPS:
        shown = " x ".join(str(size) for size in sizes)
        raise TooLargeError(
            f"{shown} groups over {len(options)} domains are more than can be planned exactly; ask for larger groups, "
            "a smaller run or fewer scopes with ceilings"
        )
    kind: Any = np.int64 if costs.fits_int64 else object
    unused = np.full((len(blocks) + 1, *rows), costs.impossible, dtype=kind)
    unused[(-1, 0, *(0 for _ in sizes))] = 0
    paid = np.empty((len(blocks), *rows), dtype=kind)
    kept = prod(rows) * (len(options) + len(blocks)) <= MAX_ROWS
    work = np.empty((len(options) + len(blocks) + 1 if kept else longest + 2, *rows), dtype=kind)
    tables = Tables(options, blocks, costs, unused, paid, work, kept, forced)
    for number in range(len(blocks) - 1, -1, -1):
        paid[number] = tables.fill(number)[0]
        aside = costs.impossible if forced.intersection(blocks[number]) else unused[number + 1]
        np.minimum(aside, paid[number], out=unused[number])
    return tables


def runs(blocks: Integers) -> list[range]:
    """Return the runs of domains that are in one block."""
    found: list[range] = []
    for _, members in groupby(blocks.tolist()):
        start = found[-1].stop if found else 0
        found.append(range(start, start + sum(1 for _ in members)))
    return found


def _take(before: Table, options: Sequence[Option], after: Table, room: Table) -> None:
    """Lower what is in `after` to what each option of a domain costs."""
    for groups, short, cost, *_ in options:
        if short == WHOLE:
            _shift(before, groups, cost, room)
            np.minimum(after, room, out=after)
        else:
            _shift(before[0], groups, cost, room[0])
            np.minimum(after[1 + short], room[0], out=after[1 + short])


def _reserve_short(row: Table) -> None:
    """Give cell 0 the cost of cell 1, on each axis while the short group is to be placed on it."""
    for axis in range(len(row) - 1):
        table = np.moveaxis(row[1 + axis], axis, 0)
        if len(table) > 1:
            table[0] = table[1]


def _shift(before: Table, groups: Cell, cost: int, into: Table) -> None:
    if len(groups) > 1:
        for axis, taken in enumerate(groups, before.ndim - len(groups)):
            if taken:
                left = np.maximum(np.arange(before.shape[axis]) - taken, 0)
                before = before.take(left, axis=axis)
        np.add(before, cost, out=into)
        return
    taken = min(groups[0], before.shape[-1])
    np.add(before[..., : before.shape[-1] - taken], cost, out=into[..., taken:])
    np.add(before[..., :1], cost, out=into[..., :taken])
