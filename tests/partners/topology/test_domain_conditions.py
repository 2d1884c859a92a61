"""The fabric of an NVLink domain in the status of its HyperNode, on a real API server with Volcano's definitions."""

from collections.abc import Iterator

import pytest
from gkm.api.fabric_settings import Fabric
from gkm.api.topology_settings import HyperNodes, Topology
from gkm.kube.client import HttpApi, connect
from gkm.kube.informers import Informers
from gkm.kube.resources import NODES, Json
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees.volcano import manifest
from gkm_agent.kubernetes.sinks import NODEFABRICS
from gkm_operator.fabric.controller import FabricController
from support.cluster.cluster import Cluster
from support.kube import our_kinds
from support.kube.whole_objects import whole
from support.operator.nodes import kube_node, put
from support.topology.object_writer import HyperNodeWriter

RACK = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
NAME = f"nvlink-{RACK}"
MEMBERS = ("rack-node-1", "rack-node-2", "rack-node-3")
SINCE = "2026-11-01T00:00:00Z"


@pytest.fixture
def racked(schedulers: Cluster) -> Iterator[tuple[Cluster, HttpApi]]:
    our_kinds.install(schedulers)
    HyperNodeWriter(schedulers).clear()
    api = connect(str(schedulers.kubeconfig))
    for name in MEMBERS:
        put(api, NODES, kube_node(name))
        report(api, name, "True", "FabricHealthy", domain=RACK)
    yield schedulers, api
    schedulers.kubectl("delete", "nodefabrics", *MEMBERS)
    schedulers.kubectl("delete", "nodes", *MEMBERS)
    HyperNodeWriter(schedulers).clear()


def report(api: HttpApi, node: str, status: str, reason: str, **more: str) -> None:
    condition = {"type": "Healthy", "status": status, "reason": reason, "message": "", "lastTransitionTime": SINCE}
    meta = {"apiVersion": NODEFABRICS.api_version, "kind": "NodeFabric", "metadata": {"name": node}}
    put(api, whole(NODEFABRICS), meta | {"spec": {"nodeName": node}, "status": {"conditions": [condition], **more}})


def test_a_rack_says_how_many_of_its_nodes_are_impaired(racked: tuple[Cluster, HttpApi]) -> None:
    cluster, api = racked
    members = tuple(Member("Node", name) for name in MEMBERS)
    cluster.apply(manifest(HyperNode(NAME, "nvlink", members, 1)))
    # As Volcano's controller does.
    counted = '--patch={"status":{"nodeCount":3}}'
    cluster.kubectl("patch", "hypernode", NAME, "--subresource=status", "--type=merge", counted)
    settings, topology = Fabric(node_conditions=True), Topology(hyper_nodes=HyperNodes(enabled=True))
    controller = FabricController(api, settings, topology, informers=Informers(api))
    controller.work()
    try:
        until(cluster, "True", "3 of 3 nodes are healthy")
        report(api, MEMBERS[1], "False", "FabricUnhealthy", lastDomain=RACK)
        found = until(cluster, "False", f"1 of 3 nodes is impaired: {MEMBERS[1]}")
        assert (found["reason"], found["lastTransitionTime"]) == ("NodesImpaired", SINCE)
        put(api, NODES, kube_node(MEMBERS[0], "Unknown"))
        report(api, MEMBERS[1], "True", "FabricHealthy", domain=RACK)
        until(cluster, "Unknown", f"1 of 3 nodes is not known: {MEMBERS[0]}")
    finally:
        controller.close()
    assert cluster.get("hypernode", NAME)["status"]["nodeCount"] == 3


def until(cluster: Cluster, status: str, message: str) -> Json:
    def probe() -> Json | None:
        conditions: list[Json] = cluster.get("hypernode", NAME).get("status", {}).get("conditions", [])
        return next((each for each in conditions if (each["status"], each["message"]) == (status, message)), None)

    found: Json = cluster.until(probe, message)
    return found
