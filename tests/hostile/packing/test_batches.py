"""Whatever is queued, there is a batch that holds, or an error that says which run is wrong and why."""

from typing import NoReturn

import pytest
from gkm.packing.batches import packed
from gkm.packing.batches.batch import InvalidBatchError, Queued, plan_batch
from gkm.packing.errors import TooLargeError
from gkm.packing.inventory import InvalidInventoryError
from gkm.packing.values import Level, Location, Malleability, Node, Request
from support.packing.batches_brute import wrong
from support.packing.batches_cases import queue
from support.packing.inventories import inventory

HERE = Location("r", "c", "b", "d")
NODES = (Node("n1", HERE, 8, 8), Node("n2", HERE, 8, 8))
ONE = Request(8, 8, 8)


def test_an_empty_queue_is_an_empty_batch() -> None:
    batch = plan_batch(NODES, [], "v1")
    assert (batch.admitted, batch.rejected, batch.reached) == ((), (), ())
    assert (batch.objective, batch.bound, batch.gap) == (0, 0, 0)


def test_where_there_are_no_nodes_every_run_is_rejected() -> None:
    batch = plan_batch([], [Queued("one", ONE)], "v1")
    assert [(one.name, one.refusal.level, one.fits_alone) for one in batch.rejected] == [("one", Level.FLAVOR, False)]
    assert batch.bound == 0


def test_a_run_that_may_use_no_node_is_not_given_those_of_others() -> None:
    batch = plan_batch(NODES, [Queued("nowhere", ONE, ())], "v1")
    assert [one.refusal.level for one in batch.rejected] == [Level.FLAVOR]


def test_a_run_that_never_fits_is_rejected_and_stands_in_nobodys_way() -> None:
    batch = plan_batch(NODES, [Queued("huge", Request(10**9, 1, 10**9), priority=9), Queued("one", ONE)], "v1")
    assert [one.name for one in batch.admitted] == ["one"]
    assert [(one.name, one.fits_alone) for one in batch.rejected] == [("huge", False)]
    assert batch.gap == 0


def test_two_runs_of_one_name_are_told_by_it() -> None:
    with pytest.raises(InvalidBatchError, match="two runs are called 'twice'"):
        plan_batch(NODES, [Queued("twice", ONE), Queued("twice", ONE, priority=1)], "v1")


def test_a_thousand_runs_are_too_many() -> None:
    with pytest.raises(InvalidBatchError, match="1000 runs are more than the 256"):
        plan_batch(NODES, [Queued(f"run-{number}", ONE) for number in range(1_000)], "v1")


@pytest.mark.parametrize("name", ["", "x" * 254])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidBatchError, match="a run has a name of 1 to 253 characters"):
        Queued(name, ONE)


@pytest.mark.parametrize("priority", [float("nan"), True, 10**9 + 1, -(10**9) - 1, 10**400])
def test_a_priority_that_is_none_is_refused(priority: int) -> None:
    with pytest.raises(InvalidBatchError, match="run 'one' has priority"):
        Queued("one", ONE, priority=priority)


@pytest.mark.parametrize(
    "other", [Node("n1", HERE, 8, 7), Node("n1", HERE, 9, 8), Node("n1", HERE._replace(block="x"), 8, 8)]
)
def test_runs_that_list_a_node_differently_are_refused(other: Node) -> None:
    with pytest.raises(InvalidInventoryError, match="two runs list node 'n1' differently"):
        plan_batch(NODES, [Queued("one", ONE, (other,))], "v1")


def test_nodes_of_two_runs_are_the_same_nodes_by_name() -> None:
    runs = [Queued("one", ONE, NODES[:1]), Queued("two", ONE, (Node("n1", HERE, 8, 8, frozenset({"s"})),))]
    batch = plan_batch([], runs, "v1")
    assert len(batch.admitted) == 1
    assert batch.gap == 0


def test_a_run_that_may_be_smaller_is_admitted_beside_others() -> None:
    smaller = Queued("smaller", Request(16, 8, 8, malleability=Malleability(8, 8)))
    batch = plan_batch(NODES, [smaller, Queued("one", ONE)], "v1")
    assert (batch.objective, batch.gap) == (16, 0)
    assert wrong(NODES, [smaller, Queued("one", ONE)], batch) == []


def test_runs_too_large_to_be_planned_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> NoReturn:
        raise TooLargeError("not one plan was found")

    monkeypatch.setattr(packed, "plan", too_large)
    with pytest.raises(TooLargeError, match="run 'large': not one plan was found"):
        plan_batch(NODES, [Queued("large", ONE)], "v1")


def test_without_time_there_is_a_batch_all_the_same_and_it_says_so() -> None:
    nodes = inventory("h100_10k")
    runs = queue("h100_10k", nodes, 2)
    batch = plan_batch(nodes, runs, "v1", seconds=0)
    assert wrong(nodes, runs, batch) == []
    assert batch.cut_short
