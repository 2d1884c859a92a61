"""A deleted or silent node counts as such, and a change of its Node counts at once."""

from threading import Thread
from typing import Any

import pytest
from gkm_operator.caches import status
from gkm_operator.caches.fleet import Fleet
from gkm_operator.caches.totals import CacheKey, CacheSummary, Liveness, LivenessTracker
from gkm_operator.pods import PodStatus
from support.operator.images import DIGEST
from support.operator.nodes import a_node, a_report, an_agent

KEY = CacheKey("a", "x")
GOING = "2026-01-01T00:00:00Z"
READY: dict[str, Any] = {"state": "Ready", "digest": DIGEST, "pods": [{"name": "p"}]}
FAILED: dict[str, Any] = {"state": "Failed", "digest": DIGEST, "reason": "DiskFull"}


def a_fleet(*ready: str, failed: str = "") -> Fleet:
    """Return a fleet whose Nodes and agents are all Ready and have the cache; `failed` has tried."""
    fleet = Fleet()
    fleet.agents_deployed(deployed=True)
    for name in (*ready, *([failed] if failed else [])):
        fleet.node(name, ready=True)
        fleet.agent(None, an_agent(name))
        fleet.reported(None, a_report(name, {"x": FAILED if name == failed else READY}))
    return fleet


def summed(fleet: Fleet) -> CacheSummary:
    return fleet.summary(KEY, DIGEST)


@pytest.mark.parametrize(("ready", "is_ready"), [("True", True), ("False", False), ("Unknown", False), ("", False)])
def test_a_node_is_ready_when_its_condition_is_true(ready: str, is_ready: bool) -> None:  # noqa: FBT001
    assert a_node("n", ready).ready is is_ready


def test_only_readiness_is_stored_of_conditions() -> None:
    assert a_node("n").status.conditions is a_node("m").status.conditions
    assert [each.type for each in a_node("n", "False").status.conditions or ()] == ["Ready"]
    assert (an_agent("n").status, an_agent("n").ready, an_agent("n", "False").ready) == (PodStatus(), True, False)


def test_an_agent_on_its_way_out_is_not_ready() -> None:
    assert an_agent("n").ready
    assert not an_agent("n", "False").ready
    assert not an_agent("n", deletionTimestamp=GOING).ready


def test_the_liveness_of_a_node() -> None:
    presence = LivenessTracker()
    presence.deployed = True
    assert presence.liveness("n") is Liveness.GONE
    presence.nodes["n"] = False
    assert presence.liveness("n") is Liveness.NODE_NOT_READY
    presence.nodes["n"] = True
    assert presence.liveness("n") is Liveness.AGENT_NOT_READY
    presence.agents.change(None, an_agent("elsewhere"))
    presence.agents.change(None, an_agent("n", "False", name="old"))
    assert presence.liveness("n") is Liveness.AGENT_NOT_READY
    presence.agents.change(None, an_agent("n", name="new"))
    assert presence.liveness("n") is Liveness.ANSWERS
    presence.nodes["n"] = False
    assert presence.liveness("n") is Liveness.NODE_NOT_READY


def test_a_silent_node_is_not_ready_and_its_pods_count_on() -> None:
    fleet = a_fleet("n1", "n2")
    assert summed(fleet) == CacheSummary(total=2, ready=2, pods=2)
    assert fleet.node("n2", ready=False) == {KEY}
    silent = CacheSummary(total=2, ready=1, pods=2, silent=1, silences={"n2": "the Node is not ready"})
    assert summed(fleet) == silent
    assert fleet.node("n2", ready=True) == {KEY}
    assert summed(fleet) == CacheSummary(total=2, ready=2, pods=2)


def test_a_failure_stays_when_its_node_falls_silent() -> None:
    fleet = a_fleet("n1", failed="n2")
    fleet.agent(an_agent("n2"), an_agent("n2", "False"))
    found = summed(fleet)
    assert (found.failed, found.failures) == (1, {"DiskFull": ["n2"]})
    assert (found.silent, found.silences) == (1, {"n2": "its agent is not ready"})


def test_a_new_report_of_a_silent_node_replaces_its_old_one() -> None:
    fleet = a_fleet("n1", failed="n2")
    fleet.node("n2", ready=False)
    fleet.reported(a_report("n2", {"x": FAILED}), a_report("n2", {"x": READY}))
    assert (summed(fleet).failed, summed(fleet).ready) == (0, 1)
    fleet.node("n2", ready=True)
    assert summed(fleet) == CacheSummary(total=2, ready=2, pods=2)


def test_a_node_without_a_node_object_of_kubernetes_is_not_counted() -> None:
    fleet = a_fleet("n1", failed="n2")
    assert fleet.node("n2", ready=None) == {KEY}
    assert summed(fleet) == CacheSummary(total=1, ready=1, pods=1)
    assert fleet.reported(None, a_report("nobody", {"x": READY})) == set()
    assert summed(fleet).total == 1


def test_an_agent_that_is_replaced_is_silent_in_between() -> None:
    fleet = a_fleet("n1")
    old, new = an_agent("n1", deletionTimestamp=GOING), an_agent("n1", "False", name="new")
    assert fleet.agent(an_agent("n1"), old) == {KEY}
    assert fleet.agent(old, None) == set()
    assert summed(fleet).silences == {"n1": "its agent is not ready"}
    assert fleet.agent(None, an_agent("", "False", name="new")) == set()
    assert fleet.agent(an_agent("", "False", name="new"), new) == set()
    assert fleet.agent(new, an_agent("n1", name="new")) == {KEY}
    assert summed(fleet) == CacheSummary(total=1, ready=1, pods=1)


def test_where_agents_are_no_pods_of_ours_the_node_alone_decides() -> None:
    fleet = Fleet()
    fleet.node("n1", ready=True)
    fleet.reported(None, a_report("n1", {"x": READY}))
    assert summed(fleet).ready == 1
    assert fleet.agents_deployed(deployed=True) == {KEY}
    assert summed(fleet).ready == 0
    assert fleet.agents_deployed(deployed=False) == {KEY}
    assert summed(fleet).ready == 1
    fleet.node("n1", ready=False)
    assert summed(fleet).ready == 0


def test_only_the_caches_of_the_node_that_fell_silent_are_named() -> None:
    fleet = a_fleet("n1", "n2")
    fleet.reported(None, a_report("n1", {"y": READY}, "b"))
    fleet.reported(None, a_report("n1", {"z": READY}, None))
    fleet.reported(None, a_report("n2", {"other": READY}, "c"))
    assert fleet.node("n1", ready=False) == {KEY, CacheKey("b", "y"), CacheKey("", "z")}


def test_a_condition_names_silent_nodes_with_reasons() -> None:
    names = [f"node-{number}" for number in range(1, 11)]
    fleet = a_fleet(*names[:9], failed="node-10")
    assert status.ready_condition(summed(fleet), verified=True)[2] == "9 of 10 nodes are ready, 1 failed (DiskFull)"
    fleet.agent(an_agent("node-7"), None)
    said = status.ready_condition(summed(fleet), verified=True)
    message = "8 of 10 nodes are ready, 1 failed (DiskFull), 1 silent: node-7 (its agent is not ready)"
    assert said == ("False", "NodesFailed", message)
    for name in ("node-5", "node-3", "node-1", "node-2"):
        fleet.node(name, ready=False)
    assert status.ready_condition(summed(fleet), verified=True)[2] == (
        "4 of 10 nodes are ready, 1 failed (DiskFull), 5 silent: node-1 (the Node is not ready), "
        "node-2 (the Node is not ready), node-3 (the Node is not ready) and 2 more"
    )


def test_silence_is_no_error_and_all_silent_is_not_ready() -> None:
    fleet = a_fleet("n1")
    fleet.node("n1", ready=False)
    assert status.error_condition(summed(fleet))[0] == "False"
    said = status.ready_condition(summed(fleet), verified=True)
    assert said[:2] == ("False", "NodesPending")
    fleet.node("n1", ready=None)
    assert status.ready_condition(summed(fleet), verified=True)[1] == "NoMatchingNodes"


def test_concurrent_watches_never_produce_inconsistent_totals() -> None:
    names = [f"n-{number}" for number in range(20)]
    fleet = a_fleet(*names)

    def nodes() -> None:
        for name in names * 20:
            fleet.node(name, ready=False)
            fleet.node(name, ready=True)

    def agents() -> None:
        for name in names * 20:
            fleet.agent(an_agent(name), None)
            fleet.agent(None, an_agent(name))

    def reports() -> None:
        ready, failed = ({name: a_report(name, {"x": said}) for name in names} for said in (READY, FAILED))
        for name in names * 20:
            fleet.reported(ready[name], failed[name])
            fleet.reported(failed[name], ready[name])

    threads = [Thread(target=work) for work in (nodes, agents, reports)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found = summed(fleet)
        assert found.total == len(names)
        assert found.ready + found.failed + found.silent >= len(names)
    for thread in threads:
        thread.join()
    assert summed(fleet) == CacheSummary(total=20, ready=20, pods=20)
