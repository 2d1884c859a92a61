"""The writer of HyperNodes is killed at each of its requests, or each fails, or conflicts: the tree is always valid.

The API checks Volcano's rules, restated apart from GKM's code, after every single write of every test.
"""

import itertools
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry
from gkm.topology.hypernodes import HyperNode
from gkm_operator.hypernodes.writes.hypernodes import PASS_SECONDS, QUIET_SECONDS
from support.kube.interposed_api import Around, Call, InterposedApi, Killed, failing_at, killed_at
from support.operator.topology import RAW_HYPERNODES, Process, World, hypernode, racks

Change = Callable[[World], object]
NODES = racks(2, 2, 2)


def two_nodes_swap_racks(world: World) -> None:
    world.label("node-0-0-0", rack="r1-1", block="b1")
    world.label("node-1-1-0", rack="r0-0", block="b0")


def rack_moves(world: World) -> None:
    for number in range(2):
        world.label(f"node-0-0-{number}", block="b1")


def racks_swap_names(world: World) -> None:
    for number in range(2):
        world.label(f"node-0-0-{number}", rack="r0-1")
        world.label(f"node-0-1-{number}", rack="r0-0")


def blocks_swap_names(world: World) -> None:
    for name, labels in NODES.items():
        world.label(name, block={"b0": "b1", "b1": "b0"}[labels["block"]])


def every_rack_is_new(world: World) -> None:
    for name, labels in NODES.items():
        world.label(name, rack=f"new-{labels['rack']}")


def block_goes(world: World) -> None:
    for number in range(2):
        for rack in range(2):
            world.remove(f"node-1-{rack}-{number}")


def blocks_are_joined(world: World) -> None:
    for name in NODES:
        world.label(name, block="b0")


def all_of_it(world: World) -> None:
    rack_moves(world)
    world.remove("node-1-0-0")
    world.add("node-9", {"rack": "r9", "block": "b9"})
    world.label("node-1-1-0", rack="r0-1", block="b0")


def foreign_parent_comes(world: World) -> None:
    world.api.create(RAW_HYPERNODES, hypernode("other", 5, "rack-r0-0", source="other"))


def foreign_name_is_in_use(world: World) -> None:
    world.api.create(RAW_HYPERNODES, hypernode("rack-new", 1, nodes=["somewhere"], source="other"))
    world.label("node-0-0-0", rack="new")


SCENARIOS: Mapping[str, Change] = {
    change.__name__.replace("_", " "): change
    for change in (
        two_nodes_swap_racks,
        rack_moves,
        racks_swap_names,
        blocks_swap_names,
        every_rack_is_new,
        block_goes,
        blocks_are_joined,
        all_of_it,
        foreign_parent_comes,
        foreign_name_is_in_use,
    )
}


def prepared(change: Change) -> World:
    world = World(NODES)
    world.process().settle()
    change(world)
    return world


def run_with(world: World, around: Around) -> None:
    """Let a process with such writes run until it is killed or done."""

    def writes_only(call: Call, send: Callable[[], object]) -> object:
        return around(call, send) if call.writes else send()

    process = world.process(InterposedApi(world.api, writes_only))
    # Minutes pass between two looks at the clock: what has no answer by then does not arrive any more.
    process.controller.writer._clock = partial(next, itertools.count(0, 100))
    with suppress(Killed):
        settle(process)


def settle(process: Process) -> None:
    """As a process does: a request that fails outside of a sink is repeated later."""
    for _ in range(20):
        try:
            process.settle(1)
        except (ApiError, AssertionError):
            continue
        return
    process.settle()


def steps_of(change: Change) -> int:
    """The number of writes of a process that nothing disturbs."""
    count = 0

    def around(_call: Call, send: Callable[[], object]) -> object:
        nonlocal count
        count += 1
        return send()

    run_with(prepared(change), around)
    return count


def written(change: Change) -> Mapping[str, HyperNode]:
    """What an undisturbed process writes."""
    world = prepared(change)
    world.process().settle()
    assert world.api.violations == []
    return world.api.hypernodes()


def check(world: World, expected: Mapping[str, HyperNode]) -> None:
    assert world.api.violations == []
    assert world.api.hypernodes() == expected
    before = world.api.states
    world.process().settle()
    assert world.api.states == before, "the steady state writes nothing"


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


def annotate(world: World, name: str) -> None:
    """As Volcano's controller, a write that changes the version only; FakeApi has no writes of a status."""
    world.api.merge(RAW_HYPERNODES, name, {"metadata": {"annotations": {"touched": str(world.api.states)}}})


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


def test_a_process_whose_watch_lags_gives_nothing_a_second_parent() -> None:
    """What it would create has no version that could conflict, so it lists before it writes."""
    world = World({**NODES, "node-9": {"rack": "r9"}})
    world.process().settle()
    late = world.process()
    world.label("node-9", block="b9")
    late.observe()
    world.label("node-9", block="b1")
    world.process().settle()
    assert world.place("node-9") == {"rack": "rack-r9", "block": "block-b1"}
    late.work()
    assert world.api.violations == []
    late.settle()
    assert world.place("node-9") == {"rack": "rack-r9", "block": "block-b1"}


@pytest.mark.parametrize("step", range(2))
def test_a_request_of_an_earlier_leader_that_arrives_late_meets_no_write_of_the_next_one(step: int) -> None:
    """The earlier one stands still right before it sends; the next one wants another tree."""
    world = prepared(rack_moves)
    late: list[Callable[[], object]] = []
    count = iter(range(1 << 30))

    def delayed(_call: Call, send: Callable[[], object]) -> object:
        if next(count) == step:
            late.append(send)
            raise Killed
        return send()

    run_with(world, delayed)
    assert len(late) == 1
    for number in range(2):
        world.label(f"node-0-0-{number}", block="b2")
    now = [0.0]
    process = world.process()
    process.controller.writer._clock = lambda: now[0]
    process.controller.writer.quiet_until = QUIET_SECONDS
    states = world.api.states
    process.settle()
    assert world.api.states == states
    assert process.condition("HyperNodesWritten")["reason"] == "Writing"
    for send in late:
        with suppress(ApiError):
            send()
    now[0] = QUIET_SECONDS
    process.settle()
    assert world.api.violations == []
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b2"}


def test_a_writer_that_leads_no_more_sends_no_request_again() -> None:
    world = prepared(rack_moves)
    leads = [True]
    sent: list[Call] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes:
            sent.append(call)
            leads[0] = False
            annotate(world, call.name)
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.controller._leads = lambda: leads[0]
    process.observe()
    assert [type(error) for error in process.work()] == [Retry]
    assert len(sent) == 1


def newer_tree(world: World, process: Process) -> None:
    world.label("node-1-1-1", block="b0", rack="r0-1")
    process.observe()
    process.controller.sources[0].refresh()
    process.controller.tree.reconcile()


def foreign_parent_of_ours(world: World, process: Process) -> None:
    world.api.create(RAW_HYPERNODES, hypernode("other", 5, "rack-r1-1", source="other"))
    process.observe()


def foreign_hypernode_without_ours(world: World, process: Process) -> None:
    world.api.create(RAW_HYPERNODES, hypernode("other", 5, nodes=["elsewhere"], source="other"))
    process.observe()


@pytest.mark.parametrize(
    ("happens", "seconds", "is_left"),
    [
        (newer_tree, PASS_SECONDS - 1, False),
        (newer_tree, PASS_SECONDS, True),
        (foreign_parent_of_ours, 0.0, True),
        (foreign_hypernode_without_ours, PASS_SECONDS, False),
    ],
)
def test_a_pass_is_left_when_what_it_decided_from_is_no_longer_so(
    happens: Callable[[World, Process], None], seconds: float, *, is_left: bool
) -> None:
    """For a newer tree only after a while: it may come all the time, and each write is valid without it."""
    world = prepared(every_rack_is_new)
    sent: list[Call] = []
    now = [0.0]

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes and call.plural == "hypernodes":
            sent.append(call)
            if len(sent) == 1:
                happens(world, process)
                now[0] = seconds
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.controller.writer._clock = lambda: now[0]
    process.observe()
    errors = process.work()
    assert ([type(error) for error in errors], len(sent) == 1) == ([Retry] * is_left, is_left)
    settle(process)
    assert world.api.violations == []


def test_a_tree_that_is_new_before_every_write_stops_no_pass() -> None:
    """One node flaps between two racks, faster than a list of all HyperNodes takes."""
    world = prepared(every_rack_is_new)
    sent: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes and call.plural == "hypernodes":
            sent.append(call.name)
            world.label("node-0-0-0", rack=f"new-r0-{len(sent) % 2}")
            process.observe()
            process.controller.sources[0].refresh()
            process.controller.tree.reconcile()
        return send()

    process = world.process(InterposedApi(world.api, around))
    process.observe()
    process.work()
    assert world.place("node-1-1-1") == {"rack": "rack-new-r1-1", "block": "block-b1"}
    assert world.api.violations == []


@pytest.mark.parametrize("step", range(2))
def test_a_request_without_an_answer_that_arrives_late_meets_no_write_of_another_tree(step: int) -> None:
    world = prepared(rack_moves)
    late: list[Callable[[], object]] = []
    count = iter(range(1 << 30))

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes and next(count) == step:
            late.append(send)
            raise ApiError(0, "", "timed out")
        return send()

    process = world.process(InterposedApi(world.api, around))
    now = [1000.0]
    process.controller.writer._clock = lambda: now[0]
    process.observe()
    assert [error.status for error in process.work() if isinstance(error, ApiError)] == [0]
    for number in range(2):
        world.label(f"node-0-0-{number}", block="b2")
    process.settle()
    for send in late:
        with suppress(ApiError):
            send()
    now[0] += QUIET_SECONDS
    process.settle()
    assert world.api.violations == []
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b2"}
