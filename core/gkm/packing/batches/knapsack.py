"""The bound without a solver: of every row alone the most that a level can have, by a knapsack; the least of these."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gkm.packing.batches.relaxation import Proven, Relaxation
from gkm.packing.batches.rows import Row
from gkm.packing.inventory import Integers

_MAX_CELLS = 20_000
_ROWS, _LEAST_ROWS, _ALL_ROWS = 60, 5, 180
"""Rows that are solved at most, at least, and for all priorities together: hundreds of these must not take minutes."""


class _Piece(NamedTuple):
    """What is taken whole or not at all. Steps are no part of a run that is taken or not."""

    gpus: int
    weight: int
    run: int | None


_Taken = tuple[_Piece, NDArray[np.bool_]]


def most(relaxed: Relaxation, level: int, reached: Sequence[int]) -> Proven:
    """Return the most GPUs of a level where each higher one has what it reached, and runs as the tightest row would."""
    everything = frozenset(run for higher in relaxed.levels[: level + 1] for run in higher)
    ceiling = sum(relaxed.demands[run].most for run in relaxed.levels[level])
    found = Proven(ceiling, ceiling, everything)
    rows = min(_ROWS, max(_LEAST_ROWS, _ALL_ROWS // len(relaxed.levels)))
    for row in relaxed.rows[:rows]:
        proven = _of_row(relaxed, _coarse(row), level, reached)
        if proven.bound < found.bound:
            found = proven
    return found


def _coarse(row: Row) -> Row:
    """Return a row of few enough cells that is as true: halves that are rounded down weigh no more than the whole."""
    by = -(-row.capacity // _MAX_CELLS)
    if by <= 1:
        return row
    return Row(row.capacity // by, tuple(one // by for one in row.base), tuple(one // by for one in row.step))


def _of_row(relaxed: Relaxation, row: Row, level: int, reached: Sequence[int]) -> Proven:
    left = row.capacity
    chosen: set[int] = set()
    for higher in range(level):
        best, taken = _best(list(_pieces(relaxed, row, higher)), left)
        # What the higher level reached is within every row, so some weight has it.
        weight = int(np.searchsorted(best, reached[higher]))
        chosen |= _chosen(taken, weight)
        left -= weight
    best, taken = _best(list(_pieces(relaxed, row, level)), left)
    return Proven(int(best[-1]), int(best[-1]), frozenset(chosen | _chosen(taken, left)))


def _pieces(relaxed: Relaxation, row: Row, level: int) -> Iterator[_Piece]:
    for run in relaxed.levels[level]:
        one = relaxed.demands[run]
        yield _Piece(one.gpus, row.base[run], run)
        count, size = one.steps, 1
        # Steps in twos, fours and so on give every number of them.
        while count > 0:
            size = min(size, count)
            yield _Piece(size * one.step_gpus, size * row.step[run], None)
            count, size = count - size, size * 2


def _best(pieces: Sequence[_Piece], capacity: int) -> tuple[Integers, list[_Taken]]:
    """Return the most GPUs for every weight up to the capacity, and for which of them each piece is taken."""
    best = np.zeros(capacity + 1, dtype=np.int64)
    taken: list[_Taken] = []
    for piece in pieces:
        after = best.copy()
        if piece.weight <= capacity:
            after[piece.weight :] = np.maximum(best[piece.weight :], best[: capacity + 1 - piece.weight] + piece.gpus)
        taken.append((piece, after > best))
        best = after
    return best, taken


def _chosen(taken: Sequence[_Taken], weight: int) -> set[int]:
    """Return the runs that have the most GPUs within a weight."""
    chosen = set()
    for piece, where in reversed(taken):
        if where[weight]:
            weight -= piece.weight
            if piece.run is not None:
                chosen.add(piece.run)
    return chosen
