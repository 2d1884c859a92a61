"""What is proven of a batch: the most GPUs of each priority, given what the higher ones have."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from gkm.packing.batches.exact import Exact
from gkm.packing.batches.relaxation import Relaxation
from gkm.packing.errors import TooLargeError
from gkm.packing.program import Program, SearchLimits, weighted

_NODES = 2_000
"""Nodes of the search by level; what is not proven by then is a bound all the same."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The most GPUs that a level can have; and the GPUs and the runs, of all levels, of the best that is known."""

    bound: int
    gpus: int
    chosen: frozenset[int]


@dataclass(slots=True)
class Bounds:
    """Bounds by all cuts together, as an integer program; each is worked out once."""

    relaxed: Relaxation
    until: float
    cut_short: bool = False
    _optimum: Exact | None = None
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

    def improve(self, optimum: Exact) -> None:
        """Let an exact solution lower the bounds."""
        self._optimum = optimum
        self.cut_short |= optimum.cut_short

    def conditional(self, reached: Sequence[int]) -> tuple[int, ...]:
        """Return the most GPUs of each level where the higher ones have what they reached."""
        bounds = [self._most(level, reached[:level]).bound for level in range(len(self.relaxed.levels))]
        if self._optimum is not None:
            for level, (best, bound) in enumerate(zip(self._optimum.reached, self._optimum.bounds, strict=True)):
                bounds[level] = min(bounds[level], bound)
                # The bounds of lower levels are given that this one has as much.
                if reached[level] != best:
                    break
        return tuple(bounds)

    def _most(self, level: int, reached: Sequence[int]) -> Proven:
        key = level, tuple(reached)
        if key not in self._known:
            self._known[key] = self._solved(level, reached)
        return self._known[key]

    def _solved(self, level: int, reached: Sequence[int]) -> Proven:
        """Return the most GPUs of a level where each higher one has what it reached, and the runs that have them."""
        relaxed, program = self.relaxed, Program()
        # The levels that are left share the time that is left: the first must not use up the time of all.
        seconds = (self.until - monotonic()) / (len(relaxed.levels) - level + 1)
        limits = SearchLimits.within(seconds, _NODES)
        ceiling = sum(relaxed.demands[run].most for run in relaxed.levels[level])
        if not ceiling:
            return Proven(0, 0, frozenset())
        admitted: dict[int, int] = {}
        steps: dict[int, int] = {}
        for run in (run for higher in relaxed.levels[: level + 1] for run in higher):
            admitted[run] = program.column(1)
            if most := relaxed.demands[run].steps:
                steps[run] = program.column(most)
                program.row({steps[run]: 1, admitted[run]: -most}, most=0)

        def over(runs: Sequence[int], base: Sequence[int], step: Sequence[int]) -> dict[int, int]:
            return weighted(
                (1, {admitted[run]: base[run] for run in runs}),
                (1, {steps[run]: step[run] for run in runs if run in steps}),
            )

        gpus = [one.gpus for one in relaxed.demands], [one.step_gpus for one in relaxed.demands]
        for cut in relaxed.cuts:
            program.row(over(list(admitted), cut.base, cut.step), most=cut.capacity)
        for higher, least in zip(relaxed.levels[:level], reached, strict=True):
            program.row(over(higher, *gpus), least=least)
        objective = over(relaxed.levels[level], *gpus)
        try:
            solved = program.solve([weighted((-1, objective))], limits)
        except TooLargeError:
            solved = None
        if solved is None:
            self.cut_short = True
            return Proven(ceiling, 0, frozenset())
        self.cut_short |= solved.cut_short
        chosen = frozenset(run for run, column in admitted.items() if solved.values[column])
        return Proven(min(ceiling, -solved.bounds[0]), -solved.reached[0], chosen)
