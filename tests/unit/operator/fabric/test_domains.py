"""The condition of an NVLink domain: how many of its nodes are impaired, and since when."""

import json
from typing import Any

import pytest
from gkm.api.fabric_settings import Fabric
from gkm.api.fabrics import NodeFabricStatus
from gkm.api.topology_settings import HyperNodes, Topology
from gkm.kube import decoding
from gkm.kube.informers import Informers
from gkm.topology.nodes import FABRIC_HEALTHY, NodeCondition
from gkm_agent.fabric.objects import last_domain
from gkm_operator.fabric.conditions import ReportedFabric, domain_condition
from gkm_operator.fabric.controller import FABRICS, FabricController
from support.kube.fake_api import FakeApi

RACK, OTHER = "aaaaaaaa-0000-0000-0000-000000000001.1", "aaaaaaaa-0000-0000-0000-000000000002.1"


def state(status: str, day: int) -> NodeCondition:
    return NodeCondition(FABRIC_HEALTHY, status, "Reason", "", f"2026-11-{day:02}T00:00:00Z")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"n1": ("True", 3), "n2": ("True", 5)}, ("True", "NodesHealthy", "2 of 2 nodes are healthy", 5)),
        (
            {"n1": ("True", 3), "n2": ("False", 5), "n3": ("False", 4), "n4": ("Unknown", 1)},
            ("False", "NodesImpaired", "2 of 4 nodes are impaired: n[2-3]", 4),
        ),
        (
            {"n1": ("True", 3), "n2": ("Unknown", 5)},
            ("Unknown", "NodesNotKnown", "1 of 2 nodes is not known: n2", 5),
        ),
    ],
)
def test_the_worst_nodes_decide_and_the_first_of_them_says_since_when(
    states: dict[str, tuple[str, int]], expected: tuple[str, str, str, int]
) -> None:
    found = domain_condition({name: state(*one) for name, one in states.items()})
    assert found is not None
    time = f"2026-11-{expected[3]:02}T00:00:00Z"
    assert (found.status, found.reason, found.message, found.last_transition_time) == (*expected[:3], time)


def test_a_domain_without_nodes_has_no_condition_and_an_unknown_time_is_left_out() -> None:
    assert domain_condition({}) is None
    found = domain_condition({"n": NodeCondition(FABRIC_HEALTHY, "True", "Reason")})
    assert found is not None
    assert found.last_transition_time is None


def fabric(node: str, **status: str) -> ReportedFabric:
    whole: dict[str, Any] = {"metadata": {"name": node}, "status": status}
    return decoding.single_object(FABRICS, json.dumps(whole).encode())


def test_a_node_whose_fault_took_its_domain_stays_in_it_and_one_that_moved_does_not() -> None:
    api = FakeApi()
    topology = Topology(hyper_nodes=HyperNodes(enabled=True))
    controller = FabricController(api, Fabric(node_conditions=True), topology, informers=Informers(api))

    def changed(old: ReportedFabric | None, new: ReportedFabric | None) -> set[str]:
        controller._fabric_changed(old, new)
        domains = {key.removeprefix("domain/") for key in controller.queue._due if "/" in key}
        for key in list(controller.queue._due):
            controller.queue.forget(key)
        return domains

    def nodes(domain: str) -> set[str]:
        return {each.name for each in controller._domains.get(domain)}

    for node in ("n1", "n2", "n3"):
        assert changed(None, fabric(node, domain=RACK)) == {RACK}
    assert changed(fabric("n1", domain=RACK), fabric("n1", lastDomain=RACK)) == {RACK}
    assert nodes(RACK) == {"n1", "n2", "n3"}
    assert changed(fabric("n2", domain=RACK), fabric("n2", domain=OTHER)) == {RACK, OTHER}
    assert nodes(RACK) == {"n1", "n3"}
    assert nodes(OTHER) == {"n2"}
    assert changed(fabric("n3", domain=RACK), None) == {RACK}
    assert changed(fabric("n1", lastDomain=RACK), fabric("n1")) == {RACK}
    assert nodes(RACK) == set()


def test_the_agent_remembers_the_domain_of_a_node_only_while_a_fault_has_it() -> None:
    healthy = NodeFabricStatus(domain=RACK, health="healthy")
    broken = NodeFabricStatus(health="unhealthy")
    assert last_domain(healthy, NodeFabricStatus()) == ""
    assert last_domain(broken, healthy) == RACK
    assert last_domain(broken, NodeFabricStatus(health="unhealthy", last_domain=RACK)) == RACK
    assert last_domain(NodeFabricStatus(domain=OTHER, health="healthy"), healthy) == ""
    assert last_domain(NodeFabricStatus(health="none"), healthy) == ""
