"""Which worker of xdist runs a slow test, or one with real partners."""

import re
from pathlib import Path

import pytest
from support.host.workers import EACH_ALONE, ON_THIS_MACHINE, TOGETHER, group, rank

ROOT = Path(__file__).resolve().parents[3]
NODE = re.compile(
    r"\bnode_cluster\b|mark\.own_node\b|Cluster\.start\([^)]*node=True|command\(\"podman\"|\(\"containerd\""
)
"""A use of the node, of podman, or of another containerd: they have processes that a node could have left."""


def test_one_worker_runs_all_that_mounts_on_this_machine() -> None:
    assert len({group(f"{place}test_x.py::test_{number}") for number, place in enumerate(ON_THIS_MACHINE)}) == 1


@pytest.mark.parametrize("place", TOGETHER)
def test_one_worker_runs_a_directory_that_shares_a_cluster(place: str) -> None:
    assert group(f"{place}test_x.py::test_y") == group(f"{place}test_z.py::test_y")


def test_one_worker_runs_a_module() -> None:
    assert group("tests/partners/a/test_x.py::test_y[a::b]") == group("tests/partners/a/test_x.py::test_z")
    assert group("tests/partners/a/test_x.py::test_y") != group("tests/partners/a/test_w.py::test_y")


@pytest.mark.parametrize("place", EACH_ALONE)
def test_a_test_that_shares_no_fixture_goes_to_any_worker(place: str) -> None:
    assert group(f"{place}::test_x[a]") != group(f"{place}::test_x[b]")


@pytest.mark.parametrize("alone", EACH_ALONE)
def test_tests_on_this_machine_begin_first_and_those_that_any_worker_can_run_last(alone: str) -> None:
    order = [f"{alone}::test_x", "tests/partners/a/test_x.py::test_x", f"{ON_THIS_MACHINE[0]}test_x.py::test_x"]
    assert sorted(order, key=rank) == order[::-1]


@pytest.mark.parametrize("place", [place for place in EACH_ALONE if place.startswith("tests/processes/")])
def test_no_fixture_of_a_module_starts_again_for_each_of_its_tests(place: str) -> None:
    shared = [path for path in (ROOT / place).rglob("*.py") if 'scope="module"' in path.read_text(encoding="utf-8")]
    assert shared == []


@pytest.mark.parametrize("place", [*ON_THIS_MACHINE, *EACH_ALONE, *TOGETHER])
def test_the_places_are_there(place: str) -> None:
    assert (ROOT / place).exists()


def test_every_module_that_needs_the_node_is_in_the_group_of_this_machine() -> None:
    modules = [path for path in (ROOT / "tests").rglob("test_*.py") if NODE.search(path.read_text(encoding="utf-8"))]
    assert len(modules) >= 4
    assert {group(str(path.relative_to(ROOT))) for path in modules} == {group(ON_THIS_MACHINE[0])}
