"""The condition NVLinkFabricHealthy of Nodes, and the taint, on a real kube-apiserver: account, rights and policies."""

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
from support.chart.helm import render
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
OURS = {"key": "gkm.io/nvlink-fabric-unhealthy", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/repair", "value": "rack-7", "effect": "NoExecute", "timeAdded": "2026-11-01T00:00:00Z"}
CONDITIONS = Fabric(node_conditions=True)
TAINTS = Fabric(node_conditions=True, node_taint="NoSchedule")
# With its domain, as an agent reports a GPU with a broken route: a node that was never in a domain has no fabric.
UNHEALTHY = NodeFabricStatus(domain=DOMAIN, health="unhealthy", message="GPU 1: route unhealthy")
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

    def taints(self, name: str = NODE) -> list[Json]:
        """Return the taints of a Node, but for the node controller's."""
        found: list[Json] = self.admin.get(NODES, name)["spec"].get("taints", [])
        return [taint for taint in found if not taint["key"].startswith("node.kubernetes.io/")]

    def taint(self, *taints: Json) -> None:
        """Give NODE these taints, as a person does."""
        self.admin.merge(NODES, NODE, {"spec": {"taints": list(taints)}})

    def controllers_add(self, taint: Json) -> None:
        """Add a taint as the controllers do: to the taints of the version that they read."""

        def probe() -> bool:
            found = self.admin.get(NODES, NODE)
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            taints = [*found["spec"].get("taints", []), taint]
            try:
                self.controllers.merge(NODES, NODE, {"metadata": version, "spec": {"taints": taints}})
            except ApiError as error:
                if not error.conflict:
                    raise
                return False  # The node controller wrote a taint in between.
            return True

        self.cluster.until(probe, "a write of the taints by the version that was read")

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
    # Both write Nodes, so what both policies allow is allowed: as Helm renders it.
    both = render({"features": {"fabricTaints": True, "topologyLabels": True}})
    on_nodes = [each.value for each in both if each.source.startswith(("fabric-taints/", "topology-labels/"))]
    cluster.apply(on_nodes)
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
    for each in on_nodes:
        cluster.objects.delete(each)
    until_policies_hold(cluster)  # the deleted ones would refuse Nodes that other modules make as the controllers


@contextmanager
def running(site: Site, settings: Fabric = CONDITIONS) -> Iterator[list[str]]:
    """Run the controller until the block ends; yield the verbs of its writes."""
    writes: list[str] = []

    def around(call: Call, send: Callable[[], object]) -> object:
        if call.writes:
            writes.append(call.verb)
        return send()

    api = InterposedApi(site.controllers, around)
    controller = FabricController(api, settings, Topology(), informers=Informers(api))
    controller.work()
    try:
        yield writes
    finally:
        controller.close()


def test_a_report_becomes_the_condition_and_its_end_removes_it(site: Site) -> None:
    with running(site):
        site.reports(UNHEALTHY)
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
        site.reports(UNHEALTHY)
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


@pytest.fixture
def tainted(site: Site) -> Iterator[Site]:
    """The site, whose node has a taint of another writer."""
    site.taint(FOREIGN)
    yield site
    site.taint()


def test_an_unhealthy_node_has_the_taint_until_it_is_known_to_be_healthy(tainted: Site) -> None:
    site = tainted
    with running(site, TAINTS):
        site.reports(UNHEALTHY)
        site.cluster.until(lambda: site.taints() == [FOREIGN, OURS], "the taint")
        site.until("Unknown", "NodeNotReady", ready="Unknown")
        assert site.taints() == [FOREIGN, OURS]
        site.taint(FOREIGN)
        site.until("False", "FabricUnhealthy")
        site.cluster.until(lambda: site.taints() == [FOREIGN, OURS], "the taint that a person removed")
        site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy"))
        site.cluster.until(lambda: site.taints() == [FOREIGN], "only the taint of another writer")
    assert site.taints(OTHER) == []


def test_a_new_leader_with_another_effect_replaces_the_taint(tainted: Site) -> None:
    site = tainted
    site.taint(FOREIGN, OURS)
    site.reports(UNHEALTHY)
    with running(site, Fabric(node_conditions=True, node_taint="PreferNoSchedule")):
        wanted = [FOREIGN, OURS | {"effect": "PreferNoSchedule"}]
        site.cluster.until(lambda: site.taints() == wanted, "the other effect")


def test_without_the_word_no_node_is_tainted(tainted: Site) -> None:
    site = tainted
    with running(site) as writes:
        site.reports(NodeFabricStatus(domain=DOMAIN, health="healthy"))
        site.until("True", "FabricHealthy")
        site.reports(UNHEALTHY)
        site.until("False", "FabricUnhealthy")
    assert (set(writes), site.taints()) == ({"apply"}, [FOREIGN])


def test_the_command_of_the_page_removes_the_taint(tainted: Site) -> None:
    tainted.taint(FOREIGN, OURS)
    pattern = r"-o (go-template=)'(.*)' \| xargs -I\{\} kubectl (taint node) \{\} (\S+)"
    ((kind, template, verb, taint),) = re.findall(pattern, PAGE.read_text(encoding="utf-8"))
    found = tainted.cluster.kubectl("get", "nodes", "-o", kind + template).split()
    assert found == [NODE]
    tainted.cluster.kubectl(*verb.split(), NODE, taint)
    assert tainted.taints() == [FOREIGN]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"spec": {"taints": []}}, "touch no taint of a Node but gkm.io/nvlink-fabric-unhealthy"),
        ({"spec": {"taints": [FOREIGN, {"key": "a", "effect": "NoSchedule"}]}}, "touch no taint of a Node but"),
        ({"spec": {"unschedulable": True}}, "touch nothing of a Node but labels and a taint"),
        ({"spec": {"providerID": "x://y"}}, "touch nothing of a Node but labels and a taint"),
        ({"metadata": {"annotations": {"a": "b"}}}, "touch nothing of a Node but labels"),
        ({"metadata": {"labels": {"a": "b"}}}, "touch no label but level.gkm.io/"),
    ],
)
def test_the_controllers_write_nothing_else_of_a_node(tainted: Site, patch: Json, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        tainted.controllers.merge(NODES, NODE, patch)
    assert caught.value.status == 403


def test_the_policies_of_labels_and_taints_leave_room_for_each_other(tainted: Site) -> None:
    tainted.controllers.merge(NODES, NODE, {"metadata": {"labels": {"level.gkm.io/rack": "r1"}}})
    tainted.controllers_add(OURS)
    assert tainted.taints() == [FOREIGN, OURS]


def test_the_taint_of_the_controllers_ends_no_pods(tainted: Site) -> None:
    with pytest.raises(ApiError, match="the taint of the controllers ends no pods"):
        tainted.controllers_add(OURS | {"effect": "NoExecute"})
