"""HyperNodes of other sources, and what others change in ours."""

from typing import Any

import pytest
from gkm.topology.trees.conflicts import ConflictKind
from gkm_operator.hypernodes.writes.hypernodes import CONTEST_SECONDS
from support.operator.topology import RAW_HYPERNODES, Process, World, hypernode, racks

SMALL = racks(1, 2, 2)


@pytest.mark.parametrize("source", ["", "ufm", "label", "somebody"])
def test_hypernodes_of_other_sources_are_never_touched(source: str) -> None:
    world = World(SMALL)
    taken = hypernode("rack-r0-0", 1, nodes=["elsewhere"], source=source)
    parent = hypernode("theirs", 9, "rack-r0-1", source=source)
    stored = [world.api.create(RAW_HYPERNODES, one) for one in (taken, parent)]
    world.process().settle()
    assert [world.api.get(RAW_HYPERNODES, one["metadata"]["name"]) for one in stored] == stored
    assert world.api.hypernodes() == {
        name: one for name, one in world.api.hypernodes(ours=False).items() if name == "rack-r0-1"
    }


def test_a_hypernode_that_lost_our_label_is_somebody_elses_from_then_on() -> None:
    world = World(SMALL)
    process = world.process()
    process.settle()
    world.api.merge(RAW_HYPERNODES, "rack-r0-0", {"metadata": {"labels": {"volcano.sh/network-topology-source": None}}})
    world.label("node-0-1-0", rack="r0-0")
    process.settle()
    assert len(world.api.hypernodes(ours=False)["rack-r0-0"].members) == len(SMALL) // 2
    assert [conflict.about for conflict in process.controller.writer.conflicts] == ["rack-r0-0"]


def test_members_that_others_select_in_ours_are_removed() -> None:
    world = World(SMALL)
    world.process().settle()
    before = world.api.get(RAW_HYPERNODES, "rack-r0-0")["spec"]
    for selector in ({"labelMatch": {"matchLabels": {"a": "b"}}}, {"regexMatch": {"pattern": ".*"}}):
        members = [*before["members"], {"type": "Node", "selector": selector}]
        world.api.merge(RAW_HYPERNODES, "rack-r0-0", {"spec": {"members": members}})
        world.process().settle()
        assert world.api.get(RAW_HYPERNODES, "rack-r0-0")["spec"] == before
    assert world.api.violations == []


def test_members_that_others_select_in_theirs_are_not_looked_for() -> None:
    """Their cost would be a stranger's choice, and no scheduler fails because of a shared node."""
    world = World(SMALL)
    manual = hypernode("manual", 7, nodes=["elsewhere"])
    manual["spec"]["members"].append({"type": "Node", "selector": {"labelMatch": {"matchLabels": {"rack": "r0-0"}}}})
    world.api.create(RAW_HYPERNODES, manual)
    process = world.process()
    process.settle()
    assert process.controller.writer.conflicts == ()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}


def test_ours_that_cannot_be_read_is_named_so() -> None:
    world = World(SMALL)
    world.process().settle()
    world.api.merge(RAW_HYPERNODES, "rack-r0-0", {"spec": {"tierName": "x" * 1000}})
    process = world.process()
    process.settle()
    assert "HyperNode rack-r0-0 cannot be read" in process.condition("NoConflicts")["message"]


def intrude(world: World, name: str, tier: int) -> None:
    """Change a HyperNode as another client does that knows nothing of GKM."""
    world.api.merge(RAW_HYPERNODES, name, {"spec": {"tier": tier, "tierName": "theirs"}})


def contested(process: Process) -> list[str]:
    return [one.about for one in process.controller.writer.conflicts if one.kind is ConflictKind.CHANGED_BY_OTHERS]


def test_a_change_of_ours_is_repaired_once_and_then_reported_and_left() -> None:
    world = World(SMALL)
    process = world.process()
    process.settle()
    ours = world.api.get(RAW_HYPERNODES, "block-b0")["spec"]
    intrude(world, "block-b0", 5)
    process.settle()
    assert world.api.get(RAW_HYPERNODES, "block-b0")["spec"] == ours
    assert contested(process) == []
    intrude(world, "block-b0", 6)
    process.settle()
    assert world.api.get(RAW_HYPERNODES, "block-b0")["spec"]["tier"] == 6
    assert contested(process) == ["block-b0"]
    assert "kubectl get hypernode block-b0 --show-managed-fields" in process.condition("NoConflicts")["message"]
    written = process.condition("HyperNodesWritten")
    assert (written["reason"], "block-b0" in written["message"]) == ("HyperNodeConflict", True)


def test_around_a_contested_hypernode_all_others_are_written() -> None:
    world = World(SMALL)
    process = world.process()
    process.settle()
    for tier in (5, 6):
        intrude(world, "block-b0", tier)
        process.settle()
    world.label("node-0-1-0", rack="r0-0")
    process.settle()
    assert "node-0-1-0" in {member.name for member in world.api.hypernodes()["rack-r0-0"].members}
    assert world.api.get(RAW_HYPERNODES, "block-b0")["spec"]["tier"] == 6
    assert world.api.violations == []


def test_a_deletion_is_a_change_too() -> None:
    world = World(SMALL)
    process = world.process()
    process.settle()
    for _ in range(2):
        world.api.delete(RAW_HYPERNODES, "block-b0")
        process.settle()
    assert "block-b0" not in world.api.hypernodes()
    assert contested(process) == ["block-b0"]


def test_after_five_minutes_a_contested_hypernode_is_repaired_again() -> None:
    world = World(SMALL)
    process = world.process()
    now = [0.0]
    process.controller.writer._clock = lambda: now[0]
    process.settle()
    for tier in (5, 6):
        intrude(world, "block-b0", tier)
        process.settle()
    assert contested(process) == ["block-b0"]
    now[0] = 2 * CONTEST_SECONDS
    process.settle()
    assert world.api.get(RAW_HYPERNODES, "block-b0")["spec"]["tier"] == 2
    assert contested(process) == []


@pytest.mark.parametrize(
    ("theirs", "yielding"),
    [
        (hypernode("rack-r0-0", 1, nodes=["elsewhere"], source="ufm"), "block-b0, rack-r0-0"),
        (hypernode("manual", 7, "rack-r0-0"), "block-b0"),
        (hypernode("manual", 1, "rack-r0-0"), "block-b0, rack-r0-0"),
    ],
)
def test_hypernodes_that_give_way_to_others_are_not_up_to_date(theirs: dict[str, Any], yielding: str) -> None:
    world = World(SMALL)
    world.api.create(RAW_HYPERNODES, theirs)
    process = world.process()
    process.settle()
    written = process.condition("HyperNodesWritten")
    assert (written["status"], written["reason"]) == ("False", "HyperNodeConflict")
    assert written["message"].endswith(f": {yielding}")
    world.api.delete(RAW_HYPERNODES, theirs["metadata"]["name"])
    process.settle()
    assert process.condition("HyperNodesWritten")["reason"] == "UpToDate"


def test_nodes_in_no_hypernode_are_reported_before_hypernodes_that_give_way() -> None:
    world = World(SMALL | {"n" * 64: SMALL["node-0-0-0"]})
    world.api.create(RAW_HYPERNODES, hypernode("manual", 7, "rack-r0-0"))
    process = world.process()
    process.settle()
    assert process.condition("HyperNodesWritten")["reason"] == "NodeNameTooLong"
    assert process.condition("NoConflicts")["reason"] == "HyperNodeConflict"


def test_a_conflict_that_leaves_all_of_ours_written_is_none_of_the_writes() -> None:
    world = World(SMALL)
    world.api.create(RAW_HYPERNODES, hypernode("manual", 7, nodes=["node-0-0-0"]))
    process = world.process()
    process.settle()
    assert process.condition("NoConflicts")["reason"] == "HyperNodeConflict"
    assert process.condition("HyperNodesWritten")["reason"] == "UpToDate"


def test_the_sources_beside_ours_are_counted_in_the_condition() -> None:
    world = World(SMALL)
    world.api.create(RAW_HYPERNODES, hypernode("ufm-leaf", 1, nodes=["elsewhere"], source="ufm"))
    process = world.process()
    process.settle()
    found = process.condition("NoConflicts")
    assert (found["status"], found["message"]) == ("True", "HyperNodes beside GKM's: 1 of ufm")
