"""The writer of HyperNodes is killed at each of its requests, or each fails, or conflicts: the tree is always valid.

The API checks Volcano's rules, restated apart from GKM's code, after every single write of every test.
"""

import operator
from collections.abc import Callable
from functools import partial

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import HyperNode
from support.kube.interposed_api import Around, Call, InterposedApi, failing_at, killed_at
from support.operator.hypernode_changes import (
    NODES,
    SCENARIOS,
    all_of_it,
    annotate,
    check,
    prepared,
    run_with,
    steps_of,
    written,
)
from support.operator.topology import RAW_HYPERNODES, World


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_writer_killed_at_any_write_leaves_a_valid_tree_and_the_next_one_finishes(name: str, *, after: bool) -> None:
    change, expected = SCENARIOS[name], written(SCENARIOS[name])
    steps = steps_of(change)
    assert steps > 0
    for step in range(steps):
        world = prepared(change)
        run_with(world, killed_at(step, after=after))
        world.process().settle()
        check(world, expected)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
def test_a_write_that_fails_is_made_up_for(name: str, *, after: bool) -> None:
    change, expected = SCENARIOS[name], written(SCENARIOS[name])
    for step in range(steps_of(change)):
        world = prepared(change)
        run_with(world, failing_at(step, after=after))
        check(world, expected)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_conflict_at_any_write_ends_the_pass_and_the_next_one_decides_anew(name: str) -> None:
    """Somebody removes a member right before the write."""
    change, expected = SCENARIOS[name], written(SCENARIOS[name])
    for step in range(steps_of(change)):
        world = prepared(change)
        run_with(world, touched_before(world, partial(operator.eq, step), one_member_less))
        check(world, expected)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_pass_overwrites_nothing_that_has_changed_since_its_decision(name: str) -> None:
    """What it decided from is no longer so: the order of its writes may be wrong."""
    for step in range(steps_of(SCENARIOS[name])):
        world = prepared(SCENARIOS[name])
        touched: list[tuple[str, HyperNode]] = []

        def touch(world: World, name: str, touched: list[tuple[str, HyperNode]] = touched) -> None:
            one_member_less(world, name)
            touched.append((name, world.api.hypernodes()[name]))

        process = world.process(InterposedApi(world.api, touched_before(world, partial(operator.eq, step), touch)))
        process.observe()
        errors = process.work()
        for changed, left in touched:
            assert world.api.hypernodes()[changed] == left
            assert [type(error) for error in errors] == [Retry]


def test_a_status_that_volcano_writes_after_every_write_ends_no_pass() -> None:
    world, expected = prepared(all_of_it), written(all_of_it)
    sends = InterposedApi(world.api, touched_before(world, lambda number: number % 2 == 0, annotate))
    process = world.process(sends)
    process.observe()
    assert process.work() == []
    check(world, expected)


def touched_before(world: World, when: Callable[[int], bool], touch: Callable[[World, str], None]) -> Around:
    """Somebody changes a HyperNode right before a write of it, so that its version is old."""
    count = iter(range(1 << 30))

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes and when(next(count)) and call.plural == "hypernodes" and call.verb in {"merge", "delete"}:
            touch(world, call.name)
        return send()

    return around


def one_member_less(world: World, name: str) -> None:
    """One member less, or another tier name where there is only one."""
    members = world.api.get(RAW_HYPERNODES, name)["spec"]["members"]
    world.api.merge(RAW_HYPERNODES, name, {"spec": {"members": members[1:]} if members[1:] else {"tierName": "x"}})


def test_what_others_wrote_on_our_hypernodes_stays() -> None:
    world = World(NODES)
    world.process().settle()
    others = {"metadata": {"annotations": {"a": "b"}, "labels": {"team": "c"}}}
    world.api.merge(RAW_HYPERNODES, "rack-r0-0", others)
    world.label("node-0-1-0", rack="r0-0")
    world.process().settle()
    found = world.api.get(RAW_HYPERNODES, "rack-r0-0")
    assert (found["metadata"]["annotations"]["a"], found["metadata"]["labels"]["team"]) == ("b", "c")
    assert len(found["spec"]["members"]) == len(NODES["node-0-0-0"]) + 1


def test_while_the_api_is_away_nothing_is_lost_and_afterwards_all_is_written() -> None:
    change, expected = all_of_it, written(all_of_it)
    world = prepared(change)
    process = world.process()
    process.observe()
    world.api.fault = lambda _verb, _plural: ApiError(0, "", "connection refused")
    for _ in range(3):
        assert process.work() != []
    world.api.fault = lambda _verb, _plural: None
    process.settle()
    check(world, expected)
