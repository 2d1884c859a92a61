"""The bound by HiGHS: all rows together, as a mixed-integer programme. The only file that imports highspy."""

from collections.abc import Sequence
from importlib.util import find_spec
from math import floor, isfinite
from typing import TYPE_CHECKING

from gkm.packing.batches.relaxation import Proven, Relaxation

if TYPE_CHECKING:
    import highspy

_MAX_NODES = 2_000
"""Nodes of the search by level; what is not proven by then is a bound all the same."""
_CLOSE = 1e-5
"""How far HiGHS may be from a whole number of GPUs that it means."""
_OPTIONS = {"threads": 1, "random_seed": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 0.5, "mip_max_nodes": _MAX_NODES}

_Weights = tuple[Sequence[int], Sequence[int]]
"""A weight for each run, and one for each of its steps."""


def installed() -> bool:
    """Return whether highspy is there: it is in the extra `batches`."""
    return find_spec("highspy") is not None


def most(relaxed: Relaxation, level: int, reached: Sequence[int], seconds: float) -> Proven:
    """Return the most GPUs of a level where each higher one has what it reached, and the runs that have them.

    One thread and a limit in nodes make the answer the same each time, unless the seconds run out.

    Raises:
        ModuleNotFoundError: highspy is not installed.
    """
    import highspy  # noqa: PLC0415 - an extra that most installations do without

    ceiling = sum(relaxed.demands[run].most for run in relaxed.levels[level])
    if not ceiling:
        return Proven(0, 0, frozenset())
    runs = [run for higher in relaxed.levels[: level + 1] for run in higher]
    model = _model(relaxed, runs, relaxed.levels[level])
    for higher, gpus in zip(relaxed.levels[:level], reached, strict=True):
        _add(model, runs, _gpus(relaxed, higher), gpus, highspy.kHighsInf)
    model.setOptionValue("time_limit", max(0.01, seconds))
    model.run()
    info = model.getInfo()
    bound = ceiling
    if isfinite(info.mip_dual_bound):
        bound = min(ceiling, floor(info.mip_dual_bound + _CLOSE))
    chosen, gpus = frozenset[int](), 0
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = model.getSolution().col_value
        chosen = frozenset(run for number, run in enumerate(runs) if values[2 * number] > 1 / 2)
        gpus = round(info.objective_function_value)
    return Proven(bound, gpus, chosen, model.getModelStatus() == highspy.HighsModelStatus.kTimeLimit)


def _model(relaxed: Relaxation, runs: Sequence[int], level: Sequence[int]) -> "highspy.Highs":
    """Return a model with two columns a run, whether it is admitted and how many steps it has, and with all rows."""
    import highspy  # noqa: PLC0415 - as above

    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    for name, value in _OPTIONS.items():
        model.setOptionValue(name, value)
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for number, run in enumerate(runs):
        one, counts = relaxed.demands[run], run in level
        model.addCol(one.gpus if counts else 0, 0, 1, 0, [], [])
        model.addCol(one.step_gpus if counts else 0, 0, one.steps, 0, [], [])
        for column in (2 * number, 2 * number + 1):
            model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        if one.steps:
            model.addRow(-highspy.kHighsInf, 0, 2, [2 * number, 2 * number + 1], [-one.steps, 1])
    for row in relaxed.rows:
        _add(model, runs, (row.base, row.step), -highspy.kHighsInf, row.capacity)
    return model


def _gpus(relaxed: Relaxation, level: Sequence[int]) -> _Weights:
    """Return the GPUs of each run of a level, and those of its steps."""
    demands = list(enumerate(relaxed.demands))
    return (
        [one.gpus if run in level else 0 for run, one in demands],
        [one.step_gpus if run in level else 0 for run, one in demands],
    )


def _add(model: "highspy.Highs", runs: Sequence[int], weights: _Weights, least: float, most: float) -> None:
    """Add a row over the runs of the model."""
    base, step = weights
    terms = {2 * number: base[run] for number, run in enumerate(runs)}
    terms |= {2 * number + 1: step[run] for number, run in enumerate(runs)}
    columns = sorted(column for column, weight in terms.items() if weight)
    model.addRow(least, most, len(columns), columns, [terms[column] for column in columns])
