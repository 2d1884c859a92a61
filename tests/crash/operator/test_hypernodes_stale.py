"""Writers of HyperNodes whose view is old, and requests that arrive late: the tree is valid after every write."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from gkm.kube.elector import NotLeading
from gkm.kube.errors import ApiError
from gkm.kube.workqueue import Retry
from gkm_operator.hypernodes.writes.hypernodes import PASS_SECONDS, QUIET_SECONDS
from support.kube.interposed_api import Call, InterposedApi, Killed
from support.kube.leading import leading
from support.operator.hypernode_changes import (
    NODES,
    annotate,
    every_rack_is_new,
    prepared,
    rack_moves,
    run_with,
    settle,
)
from support.operator.topology import RAW_HYPERNODES, Process, World, hypernode


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

    process = world.process(leading(InterposedApi(world.api, around), lambda: leads[0]))
    process.observe()
    assert [type(error) for error in process.work()] == [NotLeading]
    assert len(sent) == 1


def newer_tree(world: World, process: Process) -> None:
    world.label("node-1-1-1", block="b0", rack="r0-1")
    process.observe()
    process.controller.sources[0].refresh()
    process.controller.tree.reconcile(process.seconds)


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
            process.controller.tree.reconcile(process.seconds)
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
