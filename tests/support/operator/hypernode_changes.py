"""Changes of a cluster that HyperNodes follow, and a process that follows them on an API that checks every write."""

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from gkm.kube.errors import ApiError
from gkm.topology.hypernodes import HyperNode
from support.kube.interposed_api import Around, Call, InterposedApi, Killed, RequestCounter
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


def annotate(world: World, name: str) -> None:
    """As Volcano's controller, a write that changes the version only; FakeApi has no writes of a status."""
    world.api.merge(RAW_HYPERNODES, name, {"metadata": {"annotations": {"touched": str(world.api.states)}}})


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
    counter = RequestCounter()
    run_with(prepared(change), counter)
    return counter.count


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
