"""HyperNodes of other sources, and what others change in ours."""

import pytest
from support.operator.topology import RAW_HYPERNODES, World, hypernode, racks

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
