"""What an agent may say of a fabric, on a real API server: of its own node, with labels of ours, and nothing else."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from gkm.api.fabrics import EthernetLink, InfiniBandPort, LldpNeighbor, NodeFabricStatus, NVLink, NVLinkHealth
from gkm.api.meta import ObjectMeta
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, NODES, Json
from gkm_agent.fabric.labels import WantedLabels
from gkm_agent.fabric.objects import survey_name, survey_object
from gkm_agent.fabric.report import FabricReport
from gkm_agent.kubernetes.sinks import NODEFABRICS, KubernetesFabricSink
from gkm_agent.kubernetes.source import NodeView
from gkm_agent.report.objects import without_conditions
from msgspec import structs
from support.agent.fabric_values import DOMAIN, OTHER_UUID, report
from support.cluster.cluster import Cluster, KubectlFailed
from support.operator.deployment import deployed

AGENT = "system:serviceaccount:gkm-system:gkm-agent"
OWN, THEIRS = "fabric-own", "fabric-theirs"
FOREIGN = {"nvidia.com/gpu.present": "true", "topology.gkm.io/block": "b1"}


@dataclass(frozen=True)
class Site:
    """A cluster with two Nodes, and the API as the agent of OWN and as an administrator have it."""

    cluster: Cluster
    agent: HttpApi
    admin: HttpApi

    def node(self, name: str = OWN) -> Json:
        return self.admin.get(NODES, name)

    def labels(self, name: str = OWN) -> dict[str, str]:
        return dict(self.node(name)["metadata"].get("labels", {}))

    def view(self) -> NodeView:
        found = self.node()["metadata"]
        meta = ObjectMeta(OWN, uid=found["uid"], resource_version=found["resourceVersion"], labels=self.labels())
        return NodeView(meta)

    def sink(self) -> KubernetesFabricSink:
        return KubernetesFabricSink(self.agent, OWN, self.view)


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> Site:
    deployed(cluster)
    admin = connect(str(cluster.kubeconfig))
    for name in (OWN, THEIRS):
        metadata = {"name": name, "labels": FOREIGN, "annotations": {"owner": "admin"}}
        admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    return Site(cluster, connect(str(cluster.kubeconfig_for(AGENT, node=OWN))), admin)


@pytest.fixture
def site(whole: Site) -> Site:
    """The site as it was at first: no label of ours, no NodeFabric."""
    for name in (OWN, THEIRS):
        ours = dict.fromkeys(set(whole.labels(name)) - set(FOREIGN))
        whole.admin.merge(NODES, name, {"metadata": {"labels": ours}})
        with suppress(ApiError):
            whole.admin.delete(NODEFABRICS, name)
    return whole


def refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        call()
    assert caught.value.status == 403, caught.value
    assert words in caught.value.message


def labelled(**labels: str | None) -> Json:
    return {"metadata": {"labels": labels}}


def test_an_agent_writes_every_object_of_its_own_node(site: Site) -> None:
    status = NodeFabricStatus(
        domain=DOMAIN,
        health="degraded",
        message="GPU 1: LimitedCapacity",
        infiniband_ports="1/1",
        nvlink=NVLink(DOMAIN.partition(".")[0], 1, "Completed", "Success", NVLinkHealth(0xFFFFFFFF, ["a trouble"])),
        infiniband=[InfiniBandPort("mlx5_0", 1, "e" * 16, "f" * 16, 671, "ACTIVE", "400 Gb/sec (4X NDR)")],
        ethernet=[EthernetLink("eth0", LldpNeighbor("02:00:00:00:00:01", "swp1", "leaf-1"))],
        problems=["lldpcli: none"],
    )
    labels = {"gkm.io/fabric-domain": DOMAIN, "cache.gkm.io/ml-apps.llama": "0123456789ab"}
    site.sink().publish(FabricReport(status, WantedLabels(labels)))

    found = site.admin.get(NODEFABRICS, OWN)
    assert structs.replace(without_conditions(found.status), last_updated=None) == status
    (condition,) = found.status.conditions
    assert (condition.type, condition.status, condition.reason) == ("Healthy", "False", "FabricDegraded")
    assert (condition.observed_generation, found.status.observed_generation) == (1, 1)
    assert found.status.last_updated
    (owner,) = found.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Node", OWN, site.node()["metadata"]["uid"])
    assert site.labels() == FOREIGN | labels


def test_what_a_person_sees_answers_the_first_question(site: Site) -> None:
    site.sink().publish(report())

    heads, line = site.cluster.kubectl("get", "nodefabrics", OWN).splitlines()
    assert heads.split() == ["NAME", "DOMAIN", "HEALTH", "IB", "AGE"]
    assert line.split()[:3] == [OWN, DOMAIN, "healthy"]


def test_what_is_no_longer_true_leaves_and_what_is_not_ours_stays(site: Site) -> None:
    sink = site.sink()
    sink.publish(report(**{"cache.gkm.io/a.b": "0"}))
    sink.publish(report("", "none"))

    assert site.labels() == FOREIGN | {"gkm.io/fabric-health": "none"}
    assert site.admin.get(NODEFABRICS, OWN).status.domain == ""


def test_saying_the_same_again_and_after_a_restart_writes_nothing(site: Site) -> None:
    site.sink().publish(report())
    before = (site.node()["metadata"]["resourceVersion"], site.admin.get(NODEFABRICS, OWN).metadata)
    again = site.sink()
    for _ in range(2):
        again.publish(report())
        again.invalidate()

    assert (site.node()["metadata"]["resourceVersion"], site.admin.get(NODEFABRICS, OWN).metadata) == before


@pytest.mark.parametrize("labels", [{"gkm.io/fabric-domain": DOMAIN}, {"cache.gkm.io/a.b": "0"}, FOREIGN])
def test_an_agent_labels_no_other_node(site: Site, labels: dict[str, str]) -> None:
    refused(lambda: site.agent.merge(NODES, THEIRS, labelled(**labels)), f"must not label the Node {THEIRS}")
    assert site.labels(THEIRS) == FOREIGN


@pytest.mark.parametrize(
    "labels",
    [
        {"pool": "mine"},
        {"topology.gkm.io/block": "b2"},
        {"nvidia.com/gpu.present": None},
        {"gkm.io.evil.example/domain": "x"},
        {"gkm.io/fabric-health": "none", "kubernetes.io/hostname": "another"},
    ],
)
def test_an_agent_touches_no_foreign_label_of_its_node(site: Site, labels: dict[str, str | None]) -> None:
    refused(lambda: site.agent.merge(NODES, OWN, labelled(**labels)), "touches no label but")
    assert site.labels() == FOREIGN


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": {"unschedulable": True}},
        {"metadata": {"annotations": {"owner": "agent"}}},
        {"metadata": {"annotations": None}},
        {"metadata": {"finalizers": ["gkm.io/kept"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": THEIRS, "uid": "u"}]}},
    ],
)
def test_an_agent_touches_nothing_of_its_node_but_labels(site: Site, patch: Json) -> None:
    before = site.node()
    refused(lambda: site.agent.merge(NODES, OWN, patch), "nothing of its Node but labels")
    assert site.node() == before


def test_an_agent_cannot_write_the_fabric_of_another_node(site: Site) -> None:
    whole: Json = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": THEIRS}}
    said = whole | {"status": {"health": "healthy"}}
    spec = whole | {"spec": {"nodeName": THEIRS}}
    words = f"the agent of node {OWN} must not write nodefabrics {THEIRS}"
    refused(lambda: site.agent.apply(NODEFABRICS, spec, field_manager="gkm-agent"), words)
    site.admin.apply(NODEFABRICS, spec, field_manager="admin")
    refused(lambda: site.agent.apply(NODEFABRICS, spec, field_manager="gkm-agent"), words)
    refused(lambda: site.agent.apply(NODEFABRICS, said, field_manager="gkm-agent", subresource="status"), words)
    refused(lambda: site.agent.delete(NODEFABRICS, THEIRS), "forbidden")


def test_a_token_that_is_bound_to_no_node_writes_nothing(site: Site) -> None:
    api = connect(str(site.cluster.kubeconfig_for(AGENT)))
    fabric: Json = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "spec": {"nodeName": OWN}}
    refused(lambda: api.create(NODEFABRICS, fabric | {"metadata": {"name": OWN}}), "not bound to a Node")
    refused(lambda: api.merge(NODES, OWN, labelled(**{"gkm.io/fabric-health": "none"})), "not bound to a Node")


def test_the_survey_of_its_own_node_is_the_only_configmap_an_agent_writes(site: Site) -> None:
    sink = site.sink()
    for _ in range(2):
        sink.survey(b"packed")
    name = survey_name(OWN)
    assert name is not None
    found = site.admin.get(CONFIGMAPS, name, "gkm-system")
    assert found["data"] == {"ibnetdiscover.gz.b64": "cGFja2Vk"}
    for foreign in (f"gkm-ibnetdiscover-{THEIRS}", "gkm-config"):
        value = survey_object(OWN, foreign, b"forged", "uid")
        words = f"must not write configmaps {foreign}"
        refused(partial(site.agent.apply, CONFIGMAPS, value, field_manager="gkm-agent"), words)
    for namespace in ("default", "kube-system"):
        value = survey_object(OWN, name, b"forged", "uid")
        value["metadata"]["namespace"] = namespace
        refused(partial(site.agent.create, CONFIGMAPS, value), "cannot create resource")


@pytest.mark.parametrize(
    ("status", "path"),
    [
        ({"domain": "a.1"}, "status.domain"),
        ({"domain": f"{OTHER_UUID}.x"}, "status.domain"),
        ({"health": "fine"}, "status.health"),
        ({"nvlink": {"cliqueID": -1}}, "status.nvlink.cliqueID"),
        ({"nvlink": {"clusterUUID": "x" * 36}}, "status.nvlink.clusterUUID"),
        ({"nvlink": {"health": {"decoded": ["x"] * 17}}}, "status.nvlink.health.decoded"),
        ({"infiniband": [{"device": "../x", "port": 1}]}, "status.infiniband[0].device"),
        ({"infiniband": [{"device": "mlx5_0", "port": 255}]}, "status.infiniband[0].port"),
        ({"infiniband": [{"device": "mlx5_0", "port": 1, "portGUID": "0x12"}]}, "status.infiniband[0].portGUID"),
        ({"infiniband": [{"device": "mlx5_0", "port": 1}] * 513}, "status.infiniband"),
        ({"ethernet": [{"interface": "eth0", "neighbour": {"chassisID": "", "portID": "1"}}]}, "chassisID"),
        ({"ethernet": [{"interface": "eth0"}]}, "neighbour"),
    ],
)
def test_the_schema_refuses_values_that_no_agent_writes(site: Site, status: Json, path: str) -> None:
    site.sink().publish(report())
    whole: Json = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": OWN}}
    with pytest.raises(ApiError) as caught:
        site.admin.apply(NODEFABRICS, whole | {"status": status}, field_manager="admin", subresource="status")
    assert caught.value.status == 422
    assert path in caught.value.message


def test_a_node_fabric_bears_the_name_of_its_node(site: Site) -> None:
    value: dict[str, Any] = {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "NodeFabric",
        "metadata": {"name": OWN},
        "spec": {"nodeName": THEIRS},
    }
    with pytest.raises(KubectlFailed, match="must be the name of the object"):
        site.cluster.apply(value)
