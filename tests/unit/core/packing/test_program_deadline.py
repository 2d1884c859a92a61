"""All objectives of a program share one deadline: the solver gets what is left of it for each, and then none."""

import highspy
import pytest
from gkm.packing import program
from gkm.packing.program import Program, SearchLimits, Solution, Terms, total
from gkm.packing.values import TooLargeError


class TimedSolver:
    """HiGHS, on a clock that only the solver moves: each run takes `seconds`, whatever it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now = 100.0
        self.given: list[float] = []
        real = program._instance

        def timed(limits: SearchLimits) -> highspy.Highs:
            highs = real(limits)
            run, option = highs.run, highs.setOptionValue

            def timed_run() -> object:
                self.now += seconds
                return run()

            def noted(name: str, value: float) -> object:
                self.given += [value] if name == "time_limit" else []
                return option(name, value)

            monkeypatch.setattr(highs, "run", timed_run)
            monkeypatch.setattr(highs, "setOptionValue", noted)
            return highs

        monkeypatch.setattr(program, "monotonic", lambda: self.now)
        monkeypatch.setattr(program, "_instance", timed)


def _solved(objectives: int, seconds: float) -> Solution | None:
    """Return the solution of a program with pairs of columns, of which one has to be above its least value."""
    model = Program()
    terms: list[Terms] = []
    for _ in range(objectives):
        pair = total([model.variable(3), model.variable(3)])
        model.row(pair, least=2)
        terms.append(pair)
    return model.solve(terms, SearchLimits.within(seconds))


def test_each_objective_gets_what_the_objectives_before_left(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = TimedSolver(monkeypatch, 1.5)
    found = _solved(4, 8.0)
    assert found is not None
    assert (found.reached, found.bounds, found.proven) == ((2,) * 4, (2,) * 4, True)
    assert solver.given == [8.0, 6.5, 5.0, 3.5]


def test_an_objective_after_the_deadline_is_not_searched_and_keeps_its_trivial_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solver = TimedSolver(monkeypatch, 1.5)
    found = _solved(4, 3.0)
    assert solver.given == [3.0, 1.5]
    assert found is not None
    assert not found.proven
    assert (found.reached[:2], found.bounds) == ((2, 2), (2, 2, 0, 0))
    assert [sum(found.values[at : at + 2]) for at in (0, 2, 4, 6)] == list(found.reached)


def test_a_program_whose_model_took_all_of_its_time_is_an_error_and_starts_no_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solver = TimedSolver(monkeypatch, 1.5)
    with pytest.raises(TooLargeError, match="a model of 2 variables and 1 conditions was not solved within its limits"):
        _solved(1, 0.0)
    assert solver.given == []
