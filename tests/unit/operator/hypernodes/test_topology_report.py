"""The ConfigMap gkm-topology, and the Events about it: what waits, what was refused, and never a provider's content."""

import pytest
from gkm.api.topology_status import CONFIG_MAP, TopologyStatus, parse_status
from gkm.kube.resources import CONFIGMAPS
from gkm.kube.resources import NODES as API_NODES
from gkm_operator import metrics
from gkm_operator.hypernodes import report
from gkm_operator.last_write import REPEAT_SECONDS
from support.operator.topology import RAW_HYPERNODES, SYSTEM, World, hypernode, racks

NODES = racks(4, 5, 5)


def test_the_report_of_a_good_cluster_has_its_numbers_and_no_event() -> None:
    world = World(NODES)
    process = world.process()
    process.settle()
    process.report()
    found = parse_status(world.report()["status"])
    assert {one.type: one.status for one in found.conditions} == {
        "ProvidersServing": "True",
        "TreeApproved": "True",
        "HyperNodesWritten": "True",
        "NoConflicts": "True",
    }
    assert (found.nodes, found.placed, found.domains) == (100, 100, {"rack": 20, "block": 4})
    assert [(one.name, one.state, one.nodes) for one in found.providers] == [("labels", "Serving", 100)]
    assert world.events() == []


def test_the_version_is_that_of_the_tree_whatever_process_made_it() -> None:
    world = World(NODES)

    def version() -> str:
        process = world.process()
        process.settle()
        process.report()
        return parse_status(world.report()["status"]).version

    before = version()
    assert len(before) == 64
    world.api.merge(API_NODES, "node-0-0-0", {"spec": {"unschedulable": True}})
    assert version() == before
    world.label("node-0-0-0", rack="r0-1")
    assert version() != before
    world.label("node-0-0-0", rack="r0-0")
    assert version() == before


def test_quarantined_nodes_are_listed_with_reasons_but_without_names_of_domains() -> None:
    world = World(NODES)
    world.label("node-0-0-0", block="secret-block")
    process = world.process()
    process.settle()
    process.report()
    text = world.report()["status"]
    found = parse_status(text)
    assert {one.node for one in found.quarantined} == {f"node-0-0-{number}" for number in range(5)}
    assert {one.reason for one in found.quarantined} == {"RackInSeveralBlocks"}
    assert found.quarantined_nodes == 5
    assert "secret-block" not in text
    assert "r0-0" not in text


def test_a_deleted_report_comes_back_without_another_change() -> None:
    world = World(NODES)
    process = world.process()
    process.settle()
    process.report()
    before, events = world.report(), world.events()
    world.api.delete(CONFIGMAPS, "gkm-topology", SYSTEM)
    process.seconds += REPEAT_SECONDS
    process.report()
    assert world.report() == before
    assert world.events() == events


def test_an_event_is_sent_when_the_guard_trips_and_one_when_all_is_well_again() -> None:
    world = World(NODES)
    process = world.process()
    process.settle()
    process.report()
    for name in list(NODES)[:30]:
        world.label(name, rack=None, block=None)
    process.settle()
    process.report()
    process.report()
    ((kind, reason, note),) = world.events()
    assert (kind, reason) == ("Warning", "TopologyGuardTripped")
    assert note.startswith("30 of 100 placed nodes would lose a domain")
    for _ in range(3):
        process.seconds += 60.0
        process.settle()
    process.report()
    assert {(kind, reason) for kind, reason, _ in world.events()} == {
        ("Warning", "TopologyGuardTripped"),
        ("Normal", "TreeApproved"),
    }


def test_a_conflict_is_an_event_with_numbers_and_the_report_has_the_names() -> None:
    world = World(NODES)
    world.api.create(RAW_HYPERNODES, hypernode("manual", 5, "rack-r0-0"))
    process = world.process()
    process.settle()
    process.report()
    written, (kind, reason, note) = sorted(world.events())
    gives_way = "1 HyperNode of GKM gives way to HyperNodes of other sources (NoConflicts): not written, or "
    assert written == ("Warning", "HyperNodeConflict", gives_way + "without members; all others are written")
    assert (kind, reason) == ("Warning", "HyperNodeConflict")
    assert note == "SecondParent 1; HyperNodes beside GKM's: 1 of no source"
    found = {one.type: one.message for one in parse_status(world.report()["status"]).conditions}
    assert found["NoConflicts"] == f"{note}: rack-r0-0 has several parents: block-b0, manual"
    world.api.create(RAW_HYPERNODES, hypernode("another", 5, "rack-r0-1"))
    process.settle()
    process.report()
    assert len(world.events()) == 3
    for name in ("manual", "another"):
        world.api.delete(RAW_HYPERNODES, name)
    process.settle()
    process.report()
    assert {reason for _, reason, _ in world.events()} == {"HyperNodeConflict", "NoConflicts", "UpToDate"}
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": "block-b0"}


def test_a_new_process_repeats_neither_events_nor_transition_times(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(NODES)
    world.api.create(RAW_HYPERNODES, hypernode("manual", 5, "rack-r0-0"))
    first = world.process()
    first.settle()
    first.report()
    before = parse_status(world.report()["status"])
    second = world.process()
    monkeypatch.setattr(report, "timestamp", lambda: "2030-01-01T00:00:00Z")
    second.settle()
    second.report()
    assert len(world.events()) == 2
    assert parse_status(world.report()["status"]) == before
    world.api.create(RAW_HYPERNODES, hypernode("another", 5, "rack-r0-1"))
    second.settle()
    second.report()
    assert [reason for _, reason, _ in world.events()] == ["HyperNodeConflict"] * 3


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"conditions": 1}', "[" * 100_000])
def test_a_report_that_cannot_be_read_is_written_anew(text: str) -> None:
    world = World(NODES)
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP, "namespace": SYSTEM}}
    world.api.create(CONFIGMAPS, value | {"data": {"status": text}})
    process = world.process()
    process.settle()
    process.report()
    assert parse_status(world.report()["status"]).placed == len(NODES)


def test_the_report_is_not_written_again_while_nothing_changes() -> None:
    world = World(NODES)
    process = world.process()
    process.settle()
    process.report()
    world.api.calls.clear()
    process.report()
    assert world.api.calls == []


def test_a_report_that_is_too_long_is_no_report() -> None:
    with pytest.raises(ValueError, match="has more than"):
        parse_status(" " * (1 << 21))
    assert parse_status("{}") == TopologyStatus()


def test_the_nodes_of_the_tree_are_counted_apart_from_those_of_plans() -> None:
    metrics.record_survey(5, 6, 7)
    metrics.record_tree({"rack": 2}, placed=3, own=4, contradictory=1)
    states = {
        name: {sample.labels["state"]: sample.value for sample in next(iter(gauge.collect())).samples}
        for name, gauge in (("survey", metrics.TOPOLOGY_NODES), ("tree", metrics.TOPOLOGY_TREE_NODES))
    }
    assert states == {
        "survey": {"located": 5, "quarantined": 6, "bare": 7},
        "tree": {"placed": 3, "own": 4, "contradictory": 1},
    }
