"""A batch is plans that hold together, its bound is above whatever can be, and its order is nobody's business."""

import random
from itertools import permutations

from gkm.packing.batches.batch import Batch, Queued, plan_batch
from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Request, Share
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.batches_brute import most, wrong
from support.packing.batches_cases import alike, queue, small
from support.packing.inventories import inventory


def by_priority(batch: Batch) -> tuple[int, ...]:
    return tuple(reached.admitted for reached in batch.reached)


def assert_bounds_hold(batch: Batch, best: tuple[int, ...]) -> None:
    """The bound of a priority is for batches that have as much of every higher one as this batch."""
    for level, reached in enumerate(batch.reached):
        if by_priority(batch)[:level] != best[:level]:
            return
        assert best[level] <= reached.bound


@settings(max_examples=examples(150))
@given(case=small())
def test_no_batch_at_all_is_beyond_the_bound(case: tuple[tuple[Node, ...], list[Queued]]) -> None:
    nodes, runs = case
    batch = plan_batch(nodes, runs, "v1")
    assert wrong(nodes, runs, batch) == []
    best = most(nodes, runs)
    assert by_priority(batch) <= best
    assert_bounds_hold(batch, best)
    assert batch.gap or by_priority(batch) == best


@settings(max_examples=examples(60))
@given(small(scopes=("s1", "s2")))
def test_no_order_of_plans_is_beyond_the_bound(case: tuple[tuple[Node, ...], list[Queued]]) -> None:
    nodes, runs = case
    batch = plan_batch(nodes, runs, "v1")
    assert wrong(nodes, runs, batch) == []
    for order in permutations(runs):
        left = {run.name: Inventory.from_nodes(nodes if run.nodes is None else run.nodes) for run in runs}
        gpus = dict.fromkeys((reached.priority for reached in batch.reached), 0)
        for run in order:
            answer = plan(left[run.name], run.request, "v1")
            if isinstance(answer, Plan):
                gpus[run.priority] += answer.gpus
                shares = [share for group in answer.groups for share in group.nodes]
                shares += [Share(spare.node, spare.gpus) for group in answer.groups for spare in group.spares]
                for name, there in left.items():
                    left[name] = there.taking(share for share in shares if share.node in there.numbers)
        assert_bounds_hold(batch, tuple(gpus.values()))


@settings(max_examples=examples(150))
@given(alike((2, 3, 5)))
def test_a_small_batch_is_the_best_there_is_and_proven_where_sizes_are_no_chain(
    case: tuple[tuple[Node, ...], list[Queued]],
) -> None:
    nodes, runs = case
    batch = plan_batch(nodes, runs, "v1")
    assert wrong(nodes, runs, batch) == []
    assert (batch.gap, by_priority(batch)) == (0, most(nodes, runs))


@settings(max_examples=examples(100))
@given(alike((1, 2, 4, 8)))
def test_where_each_size_divides_the_next_the_best_is_found_and_proven(
    case: tuple[tuple[Node, ...], list[Queued]],
) -> None:
    nodes, runs = case
    batch = plan_batch(nodes, runs, "v1")
    assert batch.gap == 0
    assert by_priority(batch) == most(nodes, runs)


@settings(max_examples=examples(60))
@given(case=small(), chance=st.randoms(use_true_random=False))
def test_the_order_of_runs_and_nodes_changes_nothing(
    case: tuple[tuple[Node, ...], list[Queued]], chance: random.Random
) -> None:
    nodes, runs = case
    batch = plan_batch(nodes, runs, "v1")
    mixed = chance.sample(nodes, len(nodes))
    again = [
        Queued(run.name, run.request, run.nodes and tuple(chance.sample(run.nodes, len(run.nodes))), run.priority)
        for run in chance.sample(runs, len(runs))
    ]
    assert plan_batch(mixed, again, "v1") == batch


def test_a_busy_cluster_gets_a_batch_that_holds_together() -> None:
    nodes = inventory("h100_10k")
    runs = queue("h100_10k", nodes, 1)
    batch = plan_batch(nodes, runs, "v1", seconds=120)
    assert wrong(nodes, runs, batch) == []
    assert not batch.cut_short
    assert batch.objective + batch.gap == batch.bound


def test_a_busy_cluster_is_filled_to_one_percent_of_the_bound() -> None:
    nodes = inventory("nvl72_10k", 3)
    batch = plan_batch(nodes, queue("nvl72_10k", nodes, 3), "v1", seconds=120)
    assert all(100 * (reached.bound - reached.admitted) <= reached.bound for reached in batch.reached)


def test_a_higher_priority_goes_before_any_number_of_gpus_of_a_lower() -> None:
    node = (Node("n", Location("r", "c", "b", "d"), 8, 8),)
    runs = [Queued("large", Request(8, 1, 8)), Queued("small", Request(1, 1, 1), priority=1)]
    batch = plan_batch(node, runs, "v1")
    assert [one.name for one in batch.admitted] == ["small"]
    assert [(one.name, one.fits_alone) for one in batch.rejected] == [("large", True)]
    assert [(one.priority, one.asked, one.admitted, one.bound) for one in batch.reached] == [(1, 1, 1, 1), (0, 8, 0, 0)]


def test_large_groups_of_a_low_priority_are_planned_before_small_ones_of_a_high() -> None:
    places = [Location("r", "c", "b", name) for name in ("d1", "d2")]
    nodes = [Node(f"{place.domain}-{number}", place, 1, 1) for place in places for number in range(3)]
    runs = [Queued("pairs", Request(4, 1, 2)), Queued("ones", Request(2, 1, 1), priority=5)]
    assert plan_batch(nodes, runs, "v1").objective == 6
