"""The condition NVLinkFabricHealthy of Nodes on a real kube-apiserver: the account, rights and policy that ship."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from gkm.api.fabric_settings import Fabric
from gkm.api.fabrics import NodeFabricStatus
from gkm.api.meta import ObjectMeta, timestamp
from gkm.api.topology_settings import Topology
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.informers import Informers
from gkm.kube.resources import NODES, Json
from gkm_agent.fabric.labels import WantedLabels
from gkm_agent.fabric.report import FabricReport
from gkm_agent.kubernetes.sinks import KubernetesFabricSink
from gkm_agent.kubernetes.source import NodeView
from gkm_operator.fabric.controller import FabricController
from support.agent.fabric_values import DOMAIN
from support.cluster.cluster import Cluster
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.kube.interposed_api import Call, InterposedApi
from support.operator.deployment import ROOT, component, deployed
from support.operator.nodes import kube_node, put

CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"
AGENT = "system:serviceaccount:gkm-system:gkm-agent"
NODE, OTHER = "conditioned", "unconditioned"
TYPE = "NVLinkFabricHealthy"
PAGE = ROOT / "docs" / "reference" / "fabric.md"


@dataclass(frozen=True)
class Site:
    """A cluster with two Nodes, and the API as the controllers, the agent of NODE and an administrator have it."""

    cluster: Cluster
    controllers: HttpApi
    agent: HttpApi
    admin: HttpApi

    def condition(self, name: str = NODE) -> Json | None:
        conditions = self.admin.get(NODES, name)["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == TYPE), None)

    def beat(self, ready: str = "True") -> None:
        """Do what the kubelet of NODE does: otherwise the node controller takes the node for lost after 50 s."""
        node = kube_node(NODE, ready)
        node["status"]["conditions"][-1]["lastHeartbeatTime"] = timestamp()
        put(self.admin, NODES, node)

    def until(self, status: str, reason: str, ready: str = "True") -> Json:
        def probe() -> Json | None:
            self.beat(ready)
            found = self.condition()
            return found if found and (found["status"], found["reason"]) == (status, reason) else None

        found: Json = self.cluster.until(probe, f"{status} {reason}")
        return found

    def reports(self, status: NodeFabricStatus) -> None:
        """Report as the agent of NODE does."""
        found = self.admin.get(NODES, NODE)["metadata"]
        view = NodeView(ObjectMeta(NODE, uid=found["uid"], labels=found.get("labels", {})))
        KubernetesFabricSink(self.agent, NODE, lambda: view).publish(FabricReport(status, WantedLabels({})))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    deployed(cluster)
    cluster.apply(component("fabric-conditions"))
    until_rights_hold(cluster)
    until_policies_hold(cluster)
    admin = connect(str(cluster.kubeconfig))
    for name in (NODE, OTHER):
        put(admin, NODES, kube_node(name))
    yield Site(
        cluster,
        connect(str(cluster.kubeconfig_for(CONTROLLERS))),
        connect(str(cluster.kubeconfig_for(AGENT, node=NODE))),
        admin,
    )
    for name in (NODE, OTHER):
        admin.delete(NODES, name)


@contextmanager
def running(site: Site) -> Iterator[list[str]]:
    """Run the controller until the block ends; yield the verbs of its writes."""
    writes: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes:
            writes.append(call.verb)
        return send()

    api = InterposedApi(site.controllers, around)
    controller = FabricController(api, Fabric(node_conditions=True), Topology(), informers=Informers(api))
    controller.work()
    try:
        yield writes
    finally:
        controller.close()


def test_a_report_becomes_the_condition_and_its_end_removes_it(site: Site) -> None:
    with running(site):
        site.reports(NodeFabricStatus(health="unhealthy", message="GPU 1: route unhealthy"))
        found = site.until("False", "FabricUnhealthy")
        assert (found["message"], bool(found["lastTransitionTime"])) == ("GPU 1: route unhealthy", True)
        site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy"))
        site.until("True", "FabricHealthy")
        site.reports(NodeFabricStatus(health="none"))
        site.cluster.until(lambda: site.condition() is None, "no condition")
    kept = {each["type"] for each in site.admin.get(NODES, NODE)["status"]["conditions"]}
    assert kept >= {"Ready", "MemoryPressure", "DiskPressure"}
    assert site.condition(OTHER) is None


def test_a_restart_writes_nothing_and_a_node_that_stops_is_not_known(site: Site) -> None:
    site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy"))
    with running(site):
        site.until("True", "FabricHealthy")
        site.until("Unknown", "NodeNotReady", ready="Unknown")
        site.until("True", "FabricHealthy")
    with running(site) as writes:
        site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy", problems=["a port"]))
        site.until("True", "FabricHealthy")
        assert writes == []
        site.reports(NodeFabricStatus(health="unhealthy", message="GPU 1"))
        site.until("False", "FabricUnhealthy")
    assert writes == ["apply"]


def test_the_command_of_the_page_removes_the_condition(site: Site) -> None:
    site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy"))
    with running(site):
        site.until("True", "FabricHealthy")
    (patch,) = re.findall(r"--subresource=status --type=strategic -p '(.*)'", PAGE.read_text(encoding="utf-8"))
    site.cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=strategic", f"--patch={patch}")
    assert site.condition() is None


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "touch no condition of a Node but"),
        ({"status": {"capacity": {"nvidia.com/gpu": "8"}}}, "touch nothing of the status of a Node"),
        ({"status": {"addresses": [{"type": "Hostname", "address": "x"}]}}, "touch nothing of the status of a Node"),
        ({"metadata": {"labels": {"level.gkm.io/rack": "x"}}}, "touch nothing of a Node by its status"),
        ({"metadata": {"annotations": {"a": "b"}}}, "touch nothing of a Node by its status"),
    ],
)
def test_the_controllers_write_nothing_else_by_the_status(site: Site, patch: Json, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        site.controllers.merge(NODES, NODE, patch, subresource="status")
    assert caught.value.status == 403


def test_an_agent_writes_no_condition_of_any_node(site: Site) -> None:
    patch: dict[str, Any] = {"status": {"conditions": [{"type": TYPE, "status": "True"}]}}
    for name in (NODE, OTHER):
        with pytest.raises(ApiError, match=re.escape('cannot patch resource "nodes/status"')) as caught:
            site.agent.merge(NODES, name, patch, subresource="status")
        assert caught.value.status == 403
