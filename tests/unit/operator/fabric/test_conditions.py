"""The condition NVLinkFabricHealthy of a Node: what the agent's report and the readiness of the node make of it."""

import json
from typing import Any

import pytest
from gkm.api.fabrics import NodeFabric, NodeFabricStatus, NVLink
from gkm.api.meta import Condition, ObjectMeta
from gkm.api.nodes import NodeSpec
from gkm.kube import decoding
from gkm.topology.nodes import FABRIC_HEALTHY, Node, NodeCondition
from gkm_agent.fabric.objects import healthy
from gkm_operator.fabric.conditions import MAX_MESSAGE, ReportedFabric, wanted_condition
from gkm_operator.fabric.controller import FABRICS
from gkm_operator.nodes import NODES
from msgspec import json as msgspec_json
from msgspec import structs

READ, CHANGED, DOWN = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z", "2026-11-03T00:00:00Z"
DOMAIN = "aaaaaaaa-0000-0000-0000-000000000001.1"


def node(ready: str = "True", *others: dict[str, str]) -> Node:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": DOWN}, *others]
    found: dict[str, Any] = {"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": conditions}}
    return decoding.single_object(NODES, json.dumps(found).encode())


def fabric(status: NodeFabricStatus) -> ReportedFabric:
    """What the controllers read of the NodeFabric that an agent writes."""
    state, reason, message = healthy(status)
    conditions = [Condition("Healthy", state, reason, message, CHANGED)]
    whole = NodeFabric(ObjectMeta(name="n"), NodeSpec("n"), NodeFabricStatus(conditions=conditions))
    return decoding.single_object(FABRICS, msgspec_json.encode(whole))


HEALTHY = NodeFabricStatus(domain=DOMAIN, health="healthy")
BROKEN = NodeFabricStatus(health="unhealthy", message="GPU 1: route unhealthy", domain="u.1")
BOOTING = NodeFabricStatus(health="degraded", message="GPU 0", nvlink=NVLink(state="NotStarted"))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (HEALTHY, ("True", "FabricHealthy")),
        (BROKEN, ("False", "FabricUnhealthy")),
        (NodeFabricStatus(health="degraded", message="a link"), ("False", "FabricDegraded")),
        (BOOTING, ("Unknown", "FabricRegistering")),
    ],
)
def test_a_node_has_the_condition_of_its_node_fabric_since_the_same_time(
    status: NodeFabricStatus, expected: tuple[str, str]
) -> None:
    found = wanted_condition(node(), fabric(status))
    assert found is not None
    assert (found.type, found.status, found.reason) == (FABRIC_HEALTHY, *expected)
    assert (found.message, found.last_transition_time) == (healthy(status)[2], CHANGED)


@pytest.mark.parametrize("ready", ["True", "False", "Unknown"])
def test_a_node_without_a_fabric_or_a_report_has_no_condition(ready: str) -> None:
    """Programs that repair nodes take Unknown for a fault: PCIe GPUs have none."""
    assert wanted_condition(node(ready), None) is None
    assert wanted_condition(node(ready), fabric(NodeFabricStatus(health="none"))) is None
    assert wanted_condition(node(ready), fabric(NodeFabricStatus())) is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_while_a_node_is_not_ready_its_fabric_is_not_known(ready: str) -> None:
    message = "the node is not ready; the last report of its agent was FabricHealthy"
    found = wanted_condition(node(ready), fabric(HEALTHY))
    assert found == NodeCondition(FABRIC_HEALTHY, "Unknown", "NodeNotReady", message, DOWN)


def test_what_is_written_is_what_is_read_so_nothing_is_written_twice() -> None:
    wanted = wanted_condition(node(), fabric(BROKEN))
    assert wanted is not None
    stored = json.loads(msgspec_json.encode(wanted)) | {"lastHeartbeatTime": None}
    assert node("True", stored).condition(FABRIC_HEALTHY) == wanted


def test_a_message_of_any_length_is_cut() -> None:
    broken = fabric(BROKEN)
    report = NodeCondition("Healthy", "False", "FabricUnhealthy", "x" * 9999, CHANGED)
    found = wanted_condition(
        node(), structs.replace(broken, status=structs.replace(broken.status, conditions=(report,)))
    )
    assert found is not None
    assert len(found.message) == MAX_MESSAGE
