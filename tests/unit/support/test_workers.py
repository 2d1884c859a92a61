"""Which worker of xdist runs a test with real partners."""

import re
from pathlib import Path

import pytest
from support.host.workers import EACH_ALONE, ON_THIS_MACHINE, group, rank

ROOT = Path(__file__).resolve().parents[3]
NODE = re.compile(r"mark\.e2e\b|mark\.own_node\b")


def test_one_worker_runs_all_that_mounts_on_this_machine() -> None:
    assert len({group(f"{place}test_x.py::test_{number}") for number, place in enumerate(ON_THIS_MACHINE)}) == 1


def test_one_worker_runs_a_module() -> None:
    assert group("tests/peers/a/test_x.py::test_y[a::b]") == group("tests/peers/a/test_x.py::test_z")
    assert group("tests/peers/a/test_x.py::test_y") != group("tests/peers/a/test_w.py::test_y")


def test_a_row_of_the_matrix_goes_to_the_worker_that_has_nothing_left() -> None:
    (module,) = EACH_ALONE
    assert group(f"{module}::test_x[a]") != group(f"{module}::test_x[b]")
    order = [f"{module}::test_x", "tests/peers/a/test_x.py::test_x", f"{ON_THIS_MACHINE[0]}test_x.py::test_x"]
    assert sorted(order, key=rank) == order[::-1]


@pytest.mark.parametrize("place", [*ON_THIS_MACHINE, *EACH_ALONE])
def test_the_places_are_there(place: str) -> None:
    assert (ROOT / place).exists()


def test_every_module_that_needs_the_node_is_in_the_group_of_this_machine() -> None:
    modules = [path for path in (ROOT / "tests").rglob("test_*.py") if NODE.search(path.read_text(encoding="utf-8"))]
    assert len(modules) > 5
    assert {group(str(path.relative_to(ROOT))) for path in modules} == {group(ON_THIS_MACHINE[0])}
