"""A plan holds the GPUs that pods hold, on a real control plane that taints sick nodes and evicts their pods."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.kube.resources import NODES, Json
from support.cluster.cluster import Cluster
from support.host import pages
from support.operator.deployment import SHORT_GRACE
from support.operator.nodes import put
from support.operator.plans import PODS, claims, gpu_node, gpu_pod
from support.operator.plans_site import FLAVOR, NAMESPACE, Site, plans_site


@pytest.fixture
def site(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    with plans_site(gkm_cluster, tmp_path) as made:
        yield made


def start(site: Site, run: str, nodes: list[str], **spec: Any) -> None:  # noqa: ANN401 -- JSON
    """Start a pod of 8 GPUs on each node."""
    for node in nodes:
        pod = gpu_pod(f"{run}-{node}", node, 8, run, NAMESPACE)
        pod["spec"] |= spec
        put(site.api, PODS, pod)


def ready(site: Site, node: str, status: str) -> None:
    """Let a node report its condition Ready, as its kubelet or the controller of nodes does."""
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": "test"}
    reported = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"conditions": [condition]}}
    site.cluster.objects.apply(reported, "status")


def planned(site: Site, name: str, gpus: int, **spec: Any) -> list[str]:  # noqa: ANN401 -- JSON
    """Ask for a run; return the nodes of its plan."""
    site.ask(name, gpus, **spec)
    site.until(name, "Planned", f"{name}-1")
    return sorted(claims(plan(site, f"{name}-1")))


def plan(site: Site, name: str) -> Json:
    return next(one for one in site.plans() if one["metadata"]["name"] == name)


def drift(site: Site, name: str) -> tuple[str, str]:
    status = site.cluster.get("run", name, NAMESPACE)["status"]
    found = [one for one in status["conditions"] if one["type"] == "Drift"]
    return next(((one["status"], one["reason"]) for one in found), ("", ""))


def test_a_node_that_is_not_ready_for_a_while_keeps_its_group(site: Site) -> None:
    site.rack("pf1", 2)
    site.rack("pf2", 3)
    site.start("first", main=SHORT_GRACE)
    nodes = planned(site, "steady", 16)
    start(site, "steady", nodes)
    (waiting,) = planned(site, "witness", 8)
    # Both nodes fail at once: when the group without pods has moved, the grace period of both has passed.
    ready(site, nodes[0], "Unknown")
    ready(site, waiting, "Unknown")
    site.until("witness", "Planned", "witness-2")
    ready(site, nodes[0], "True")
    ready(site, waiting, "True")
    site.until("steady", "Planned", "steady-1")
    # The node that no pod and no plan holds is free for others.
    rest = planned(site, "other", 8), planned(site, "last", 8)
    assert not {node for found in rest for node in found} & set(nodes)
    assert [one["metadata"]["name"] for one in site.plans() if one["spec"]["run"] == "steady"] == ["steady-1"]
    assert drift(site, "steady") == ("", "")


def test_a_group_moves_when_kubernetes_evicts_its_pods(site: Site) -> None:
    site.rack("pe1", 3)
    site.rack("pe2", 3)
    site.start("first", main=SHORT_GRACE)
    nodes = planned(site, "evicted", 16)
    soon = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}
    ]
    start(site, "evicted", nodes, tolerations=soon)
    ready(site, nodes[0], "False")

    def evicted() -> bool:
        return "deletionTimestamp" in site.cluster.get("pod", f"evicted-{nodes[0]}", NAMESPACE)["metadata"]

    site.cluster.until(evicted, "the controller-manager to delete the pod")
    site.until("evicted", "Planned", "evicted-2")
    assert nodes[0] not in claims(plan(site, "evicted-2"))
    assert nodes[1] in claims(plan(site, "evicted-2"))


def test_a_plan_follows_pods_that_run_elsewhere(site: Site) -> None:
    site.rack("pa1", 2)
    site.rack("pa2", 2)
    process = site.start("first", main=SHORT_GRACE)
    nodes = planned(site, "astray", 16)
    others = sorted(set(site.names) - set(nodes))
    start(site, "astray", others[:1])
    site.cluster.until(lambda: drift(site, "astray") == ("True", "PodsOutsidePlan"), "the drift to be reported")
    site.cluster.until(lambda: "gkm_plan_drift_gpus 8.0" in metrics(site), "the drift to be measured")
    start(site, "astray", others[1:])
    site.until("astray", "Planned", "astray-2")
    assert sorted(claims(plan(site, "astray-2"))) == others
    site.cluster.until(lambda: drift(site, "astray") == ("False", "PodsFollowPlan"), "the drift to end")
    site.cluster.until(lambda: "gkm_plan_drift_gpus 0.0" in metrics(site), "no drift to be measured")
    assert planned(site, "other", 16) == nodes
    assert process.popen.poll() is None


def metrics(site: Site) -> str:
    return pages.fetch(site.health["first"], "metrics")[1]


def test_a_run_whose_node_is_gone_returns_with_the_node(site: Site) -> None:
    site.rack("pg1", 2)
    site.rack("pg2", 2)
    site.start("first", main=SHORT_GRACE)
    nodes = planned(site, "back", 16)
    start(site, "back", nodes)
    with site.cluster.control_plane.stalled("kube-controller-manager"):
        # It would delete the pods of a node that is gone after 40 seconds, and with them the reason to return.
        site.cluster.objects.ask_to_delete("node", nodes[0])
        site.until("back", "Planned", "back-2")
        node = gpu_node(nodes[0], nodes[0].split("-")[1], gpu__flavor=FLAVOR)
        put(site.api, NODES, node | {"spec": {"taints": []}})
        site.until("back", "Planned", "back-3")
    assert sorted(claims(plan(site, "back-3"))) == nodes
