"""Integer programs whose objectives are compared one after another, solved by HiGHS: the only importer of highspy.

A program has integer columns with bounds and rows of integer weights. `solve` minimizes the first objective, fixes its
least value, minimizes the next, and so on. One thread, a fixed seed and a limit in search nodes make the answer the
same each time; a limit in seconds is the last resort on a slow machine. After each objective the values are rounded and
every row is checked in integers, so that a tolerance of the solver never reaches a plan.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gkm.packing.values import TooLargeError

if TYPE_CHECKING:
    import highspy

Terms = Mapping[int, int]
"""Integer weights by column."""
Row = tuple[Terms, float, float]
"""A weighted sum and its lower and upper bound."""

Integers = NDArray[np.int64]

SECONDS = 10.0
"""Limit of seconds of all programs for one plan."""
_SMALLER = "ask for larger groups, a smaller run or fewer scopes with ceilings"
_FAR = 1 << 40
"""A bound that no objective reaches."""
_TOLERANCE = 1e-4
"""Tolerance for reading HiGHS's bounds as whole numbers."""
_OPTIONS: Mapping[str, bool | int | float] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 1,
    "mip_rel_gap": 0.0,
    # Objectives are whole numbers: a solution less than one from the bound is an optimum.
    "mip_abs_gap": 0.999,
}


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When a search must end (seconds of the monotonic clock), and how many search nodes each objective may use."""

    deadline: float
    nodes: int = 20_000

    @classmethod
    def within(cls, seconds: float, nodes: int = 20_000) -> "SearchLimits":
        """Return limits that end `seconds` from now."""
        return cls(monotonic() + seconds, nodes)

    @classmethod
    def before(cls, deadline: float) -> "SearchLimits":
        """Return limits for a program that must end before a time of the monotonic clock.

        Raises:
            TooLargeError: the time has passed.
        """
        if deadline <= monotonic():
            raise TooLargeError(f"its integer programs were not solved within {SECONDS:.0f} seconds; {_SMALLER}")
        return cls(deadline)


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution of an integer program: each column's value, and each objective's value and proven lower bound."""

    values: tuple[int, ...]
    reached: tuple[int, ...]
    bounds: tuple[int, ...]

    @property
    def proven(self) -> bool:
        """Return whether all objectives have their proven optimum."""
        return self.reached == self.bounds

    def of(self, terms: Terms) -> int:
        """Return the value of a weighted sum in this solution."""
        return sum(weight * self.values[column] for column, weight in terms.items())


class Sum(dict[int, int]):
    """A weighted sum of columns of an integer program. Sums can be added, subtracted and multiplied by integers."""

    def add(self, other: Terms, factor: int = 1) -> None:
        """Add `factor` times another sum to this sum."""
        for column, weight in other.items():
            self[column] = changed = self.get(column, 0) + factor * weight
            if not changed:
                del self[column]

    def __add__(self, other: Terms) -> "Sum":
        found = Sum(self)
        found.add(other)
        return found

    def __sub__(self, other: Terms) -> "Sum":
        found = Sum(self)
        found.add(other, -1)
        return found

    def __mul__(self, factor: int) -> "Sum":
        return Sum({column: factor * weight for column, weight in self.items()} if factor else {})

    __rmul__ = __mul__


def total(sums: Iterable[Terms]) -> Sum:
    """Return the sum of several sums."""
    found = Sum()
    for terms in sums:
        found.add(terms)
    return found


@dataclass(slots=True)
class Program:
    """An integer program: columns and rows, in the order in which they are added."""

    _most: list[int] = field(default_factory=list)
    _rows: list[Row] = field(default_factory=list)

    def variable(self, most: int) -> Sum:
        """Add an integer column from 0 to `most` and return it as a sum."""
        self._most.append(most)
        return Sum({len(self._most) - 1: 1})

    def at_most(self, terms: Sum, limit: Terms) -> None:
        """Require that a sum is at most another sum or number."""
        self.row(terms - limit, most=0)

    def equal(self, terms: Sum, other: Terms) -> None:
        """Require that two weighted sums of columns are equal."""
        self.row(terms - other, least=0, most=0)

    def row(self, terms: Terms, *, least: float = -inf, most: float = inf) -> None:
        """Require that a weighted sum lies between two bounds."""
        self._rows.append((terms, least, most))

    def solve(self, objectives: Sequence[Terms], limits: SearchLimits) -> Solution | None:
        """Minimize the objectives one after another; return the solution, None if there is no solution.

        Raises:
            TooLargeError: the limits end the search before the first solution.
        """
        if any(not terms and not least <= 0 <= most for terms, least, most in self._rows):
            return None
        if not self._most:
            return Solution((), (0,) * len(objectives), (0,) * len(objectives))
        search = _Search(self._most, self._rows, limits)
        reached: list[int] = []
        bounds: list[int] = []
        for objective in objectives or ({},):
            lowest = self.lowest(objective)
            # The sum of the columns' own bounds is a lower bound: a solution that reaches it needs no search.
            searched = not search.has(objective, lowest) and search.minimize(objective)
            if search.values is None:
                return None
            reached.append(search.of(objective))
            # Without a result of the search, the solution of the earlier objectives stands.
            bounds.append(min(reached[-1], max(search.bound, lowest) if searched else lowest))
            search.fix(objective, reached[-1])
        values = search.values
        if values is None:
            raise AssertionError("a search without a result has returned before")
        return Solution(tuple(values), tuple(reached), tuple(bounds))

    def lowest(self, terms: Terms) -> int:
        """Return a lower bound of a sum from the bounds of its columns."""
        return sum(weight * self._most[column] for column, weight in terms.items() if weight < 0)

    def highest(self, terms: Terms) -> int:
        """Return an upper bound of a sum from the bounds of its columns."""
        return sum(weight * self._most[column] for column, weight in terms.items() if weight > 0)


class _Search:
    """A program in HiGHS, solved for one objective after another, and the best solution so far."""

    def __init__(self, most: Sequence[int], rows: Sequence[Row], limits: SearchLimits) -> None:
        self.values: list[int] | None = None
        self.bound = 0
        self._rows = list(rows)
        self._deadline = limits.deadline
        self._most = np.array(most, dtype=np.int64)
        self._highs = _instance(limits)
        self._highs.passModel(_model(self._most, rows))

    def of(self, objective: Terms) -> int:
        """Return an objective of the best solution."""
        values = self.values or []
        return sum(weight * values[column] for column, weight in objective.items())

    def has(self, objective: Terms, value: int) -> bool:
        """Return whether the best solution has this value of an objective."""
        return self.values is not None and self.of(objective) == value

    def minimize(self, objective: Terms) -> bool:
        """Search for the least value; return whether a solution was found that is as good as the one before.

        HiGHS measures its time limit from the start of each run, so each run gets the rest of the time.

        Raises:
            TooLargeError: no solution is known, and the limits ended the search.
        """
        import highspy  # noqa: PLC0415 - loaded when the first program is solved: it takes 30 MB

        seconds = self._deadline - monotonic()
        if seconds <= 0:
            return self._without_solution()
        highs = self._highs
        highs.setOptionValue("time_limit", seconds)
        count = len(self._most)
        cost = np.zeros(count)
        for column, weight in objective.items():
            cost[column] = weight
        highs.changeColsCost(count, np.arange(count, dtype=np.int32), cost)
        if self.values is not None:
            known = highspy.HighsSolution()
            known.col_value = [float(value) for value in self.values]
            highs.setSolution(known)
        highs.run()
        status, info = highs.getModelStatus(), highs.getInfo()
        if status in {highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible}:
            return False
        found = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            found = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
        if found is None or not self._valid(found):
            return self._without_solution()
        self.values = found.tolist()
        self.bound = ceil(info.mip_dual_bound - _TOLERANCE) if isfinite(info.mip_dual_bound) else -_FAR
        if status == highspy.HighsModelStatus.kOptimal:
            self.bound = self.of(objective)
        return True

    def _without_solution(self) -> bool:
        """Keep the solution of the objectives before, if there is one."""
        if self.values is None:
            raise TooLargeError(
                f"a model of {len(self._most)} variables and {len(self._rows)} conditions was not solved within "
                f"its limits; {_SMALLER}"
            )
        return False

    def fix(self, objective: Terms, value: int) -> None:
        """Require that an objective stays as good as it is."""
        if objective:
            self._rows.append((objective, -inf, value))
            columns = sorted(objective)
            self._highs.addRow(
                -inf, value, len(columns), np.array(columns, dtype=np.int32), [objective[c] for c in columns]
            )

    def _valid(self, values: Integers) -> bool:
        return not ((values < 0).any() or (values > self._most).any()) and all(
            low <= sum(weight * int(values[column]) for column, weight in terms.items()) <= high
            for terms, low, high in self._rows
        )


def _instance(limits: SearchLimits) -> "highspy.Highs":
    import highspy  # noqa: PLC0415 - as above

    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    highs.setOptionValue("mip_max_nodes", limits.nodes)
    return highs


def _model(most: Integers, rows: Sequence[Row]) -> "highspy.HighsLp":
    """Return the program as HiGHS takes it, row by row."""
    import highspy  # noqa: PLC0415 - as above

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(most), len(rows)
    model.col_cost_ = np.zeros(len(most))
    model.col_lower_, model.col_upper_ = np.zeros(len(most)), most.astype(float)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(most)
    model.row_lower_ = np.array([low for _, low, _ in rows], dtype=float)
    model.row_upper_ = np.array([high for _, _, high in rows], dtype=float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    starts = np.cumsum([0, *(len(terms) for terms, _, _ in rows)])
    model.a_matrix_.start_ = starts.astype(np.int32)
    model.a_matrix_.index_ = np.array([column for terms, _, _ in rows for column in terms], dtype=np.int32)
    model.a_matrix_.value_ = np.array([weight for terms, _, _ in rows for weight in terms.values()], dtype=float)
    return model
