"""What is proven of a batch: the most GPUs of each priority, given what the higher ones have."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from gkm.packing.batches import highs, knapsack
from gkm.packing.batches.relaxation import Proven, Relaxation


@dataclass(slots=True)
class Bounds:
    """Bounds by HiGHS or without it; each is worked out once."""

    relaxed: Relaxation
    solver: bool
    until: float
    cut_short: bool = False
    _known: dict[tuple[int, tuple[int, ...]], Proven] = field(default_factory=dict)

    def suggestion(self) -> tuple[frozenset[int], tuple[int, ...]]:
        """Return the runs that the relaxation would admit and the most GPUs of each level."""
        reached: list[int] = []
        bounds: list[int] = []
        chosen = frozenset[int]()
        for level in range(len(self.relaxed.levels)):
            proven = self._most(level, reached)
            bounds.append(proven.bound)
            reached.append(proven.gpus)
            chosen = proven.chosen or chosen
        return chosen, tuple(bounds)

    def given(self, reached: Sequence[int]) -> tuple[int, ...]:
        """Return the most GPUs of each level where the higher ones have what they reached."""
        return tuple(self._most(level, reached[:level]).bound for level in range(len(self.relaxed.levels)))

    def _most(self, level: int, reached: Sequence[int]) -> Proven:
        key = level, tuple(reached)
        if key not in self._known:
            self._known[key] = self._worked_out(level, reached)
        return self._known[key]

    def _worked_out(self, level: int, reached: Sequence[int]) -> Proven:
        if not self.solver:
            return knapsack.most(self.relaxed, level, reached)
        # What is left is shared by the levels that are left: the first must not use up the time of all.
        seconds = (self.until - monotonic()) / (len(self.relaxed.levels) - level + 1)
        proven = highs.most(self.relaxed, level, reached, seconds)
        self.cut_short = self.cut_short or proven.cut_short
        return proven
