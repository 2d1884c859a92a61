"""What happens at once to many nodes is not believed at once; what happens to few is."""

from typing import TYPE_CHECKING

from gkm.kube.errors import ApiError
from support.operator.topology import Process, World, racks, settings

if TYPE_CHECKING:
    from gkm.topology.trees.merge import Named

NODES = racks(4, 5, 5)
"""100 nodes: more than 20 lost places trip the guard, and three rounds of 60 s confirm."""


def world_with() -> tuple[World, Process]:
    world = World(NODES)
    process = world.process()
    process.settle()
    return world, process


def lose_labels(world: World, share: float) -> list[str]:
    names = list(NODES)[: int(len(NODES) * share)]
    for name in names:
        world.label(name, rack=None, block=None)
    return names


def rounds(process: Process, count: int) -> None:
    for _ in range(count):
        process.seconds += 60.0
        process.settle()


def test_thirty_percent_of_lost_labels_change_nothing_before_they_are_confirmed() -> None:
    world, process = world_with()
    before = world.api.hypernodes()
    lost = lose_labels(world, 0.3)
    process.settle()
    rounds(process, 1)
    assert world.api.hypernodes() == before
    rounds(process, 1)
    assert all(world.place(name) == {} for name in lost)
    assert world.place("node-3-4-4") == {"rack": "rack-r3-4", "block": "block-b3"}
    assert world.api.violations == []


def test_labels_that_come_back_in_time_leave_the_tree_untouched() -> None:
    world, process = world_with()
    states = world.api.states
    lost = lose_labels(world, 0.3)
    process.settle()
    for name in lost:
        world.label(name, **NODES[name])
    rounds(process, 5)
    assert world.api.states == states


def test_a_restart_counts_the_rounds_anew() -> None:
    world, process = world_with()
    before = world.api.hypernodes()
    lose_labels(world, 0.3)
    process.settle()
    rounds(process, 1)
    another = world.process()
    another.settle()
    rounds(another, 1)
    assert world.api.hypernodes() == before
    rounds(another, 1)
    assert world.api.hypernodes() != before


def test_few_lost_labels_are_believed_at_once() -> None:
    world, process = world_with()
    lost = lose_labels(world, 0.2)
    process.settle()
    assert all(world.place(name) == {} for name in lost)


def test_nodes_that_are_deleted_lose_nothing() -> None:
    world, process = world_with()
    for name in list(NODES)[:50]:
        world.remove(name)
    process.settle()
    assert set(world.api.hypernodes()) == {"block-b2", "block-b3"} | {
        f"rack-r{b}-{r}" for b in (2, 3) for r in range(5)
    }


def test_a_move_of_all_nodes_is_no_loss() -> None:
    world, process = world_with()
    for name, labels in NODES.items():
        world.label(name, rack=f"new-{labels['rack']}")
    process.settle()
    assert world.place("node-0-0-0")["rack"] == "rack-new-r0-0"


def test_what_was_approved_before_is_written_to_its_end_although_the_guard_has_tripped() -> None:
    world, process = world_with()
    world.label("node-3-4-4", rack="r0-0", block="b0")
    world.api.fault = lambda verb, _plural: ApiError(0, "", "away") if verb == "merge" else None
    process.observe()
    assert process.work() != []
    world.api.fault = lambda _verb, _plural: None
    lose_labels(world, 0.3)
    process.settle()
    assert process.controller.tree.state.guard.tripped
    assert world.place("node-3-4-4")["rack"] == "rack-r0-0"
    assert world.place("node-0-0-0")["rack"] == "rack-r0-0"


def test_a_node_that_flaps_never_makes_the_tree_invalid_and_ends_where_it_belongs() -> None:
    world, process = world_with()
    for _ in range(5):
        world.label("node-0-0-0", rack="r1-1", block="b1")
        process.settle()
        world.label("node-0-0-0", rack=None, block=None)
        process.settle()
        world.remove("node-0-0-0")
        process.settle()
        world.add("node-0-0-0", NODES["node-0-0-0"])
        process.settle()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}
    assert world.api.violations == []
    assert set(world.api.history[-1]) == {f"block-b{b}" for b in range(4)} | {
        f"rack-r{b}-{r}" for b in range(4) for r in range(5)
    }


def test_without_volcano_the_guard_reads_the_labels_of_levels() -> None:
    world = World(NODES, settings(hyperNodes={"enabled": False}, nodeLabels=True))
    process = world.process()
    process.settle()
    assert world.levels("node-0-0-0") == {"rack": "r0-0", "block": "b0"}
    lose_labels(world, 0.3)
    process.settle()
    assert world.levels("node-0-0-0") == {"rack": "r0-0", "block": "b0"}
    rounds(process, 2)
    assert world.levels("node-0-0-0")["rack"].startswith("node-")


def test_labels_lost_a_few_at_a_time_change_nothing_any_more_above_the_percentage() -> None:
    world, process = world_with()
    names = list(NODES)
    for start in range(0, 60, 5):
        for name in names[start : start + 5]:
            world.label(name, rack=None, block=None)
        process.settle()
    assert [bool(world.place(name)) for name in names].count(False) == 20
    assert process.condition("TreeApproved")["reason"] == "TopologyGuardTripped"


def without_volcano(world: World) -> None:
    world.api.fault = lambda _verb, plural: ApiError(404, "NotFound", "") if plural == "hypernodes" else None


def test_labels_are_guarded_where_hypernodes_are_configured_and_volcano_is_missing() -> None:
    world = World(NODES, settings(nodeLabels=True))
    without_volcano(world)
    process = world.process()
    process.settle()
    before = {name: world.levels(name) for name in NODES}
    lose_labels(world, 1.0)
    world.process().settle()
    process.settle()
    assert {name: world.levels(name) for name in NODES} == before


def test_hypernodes_that_appear_later_are_compared_before_anything_is_written() -> None:
    world, _ = world_with()
    before = world.api.hypernodes()
    lose_labels(world, 1.0)
    without_volcano(world)
    process = world.process()
    process.settle()
    tree = process.controller.tree
    assert tree.state.approved is not None
    world.api.fault = lambda _verb, _plural: None
    process.observe()
    written = [tree.approved]
    process.settle()
    assert written == [None]
    assert world.api.hypernodes() == before
    rounds(process, 2)
    assert not world.api.hypernodes()


def test_a_renamed_level_is_confirmed_before_its_hypernodes_are_deleted() -> None:
    world, _ = world_with()
    before = world.api.hypernodes()
    world.config = settings(levels=[{"name": "shelf", "keys": ["rack"]}, {"name": "block", "keys": ["block"]}])
    process = world.process()
    process.settle()
    assert world.api.hypernodes() == before
    rounds(process, 2)
    assert world.place("node-0-0-0") == {"shelf": "shelf-r0-0", "block": "block-b0"}


def test_nodes_that_a_forged_survey_mixes_anew_stay_where_they_are() -> None:
    world, process = world_with()
    before = world.api.hypernodes()
    for position, name in enumerate(NODES):
        world.label(name, rack=f"forged-{position % 7}", block="b0")
    process.settle()
    assert world.api.hypernodes() == before


def test_runs_are_planned_with_the_places_that_are_approved() -> None:
    world, process = world_with()
    told: list[Named | None] = []
    process.controller.tree.on_approved = lambda: told.append(process.controller.tree.approved_sources())
    lose_labels(world, 0.3)
    process.settle()
    assert told == []
    rounds(process, 2)
    labels = process.controller.sources[0].placements
    assert labels is not None
    assert told == [[("labels", labels)]]
    assert labels.places["node-3-4-4"] != labels.places["node-0-0-0"]
