"""The manifests of a plan by the real scheduler: every pod is where the plan has it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gkm.api.node_names import unfold
from support.cli.plan_files import GPU, Json, PlanWorkspace, listed, node
from support.cli.plan_manifests import only_on, uneven
from support.cluster.cluster import Cluster
from support.peers import require


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


@pytest.fixture(scope="module")
def scheduling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with a scheduler, and the nodes of a workspace, of which nobody is the kubelet."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("scheduling"), scheduler=True) as running:
        running.kubectl("create", "namespace", "ml")
        yield running


def join(cluster: Cluster, nodes: list[Json]) -> None:
    for item in nodes:
        name = item["metadata"]["name"]
        labels = item["metadata"]["labels"] | {"kubernetes.io/hostname": f"host-of-{name}"}
        bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        cluster.kubectl("create", "--filename", "-", input=json.dumps(bare))
        gpus = item["status"]["allocatable"][GPU]
        resources = {"cpu": "64", "memory": "1Ti", "pods": "110", GPU: gpus}
        status = {"capacity": resources, "allocatable": resources, "conditions": item["status"]["conditions"]}
        patch = json.dumps({"status": status})
        cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "--patch", patch)
        # Admission puts it on every new node.
        cluster.kubectl("patch", "node", name, "--type=merge", "--patch", json.dumps({"spec": {"taints": None}}))


def bound(cluster: Cluster, pods: int) -> Counter[tuple[str, str]]:
    """Return how many pods of each group are on each node, once all have one."""

    def found() -> Counter[tuple[str, str]] | None:
        listed_: dict[str, Any] = json.loads(
            cluster.kubectl("get", "pods", "--namespace=ml", "--selector=gkm.io/run=tight", "--output=json")
        )
        placed = [
            (item["metadata"]["labels"]["gkm.io/group"], item["spec"]["nodeName"])
            for item in listed_["items"]
            if "nodeName" in item["spec"]
        ]
        return Counter(placed) if len(placed) == pods else None

    return cluster.until(found, f"{pods} pods to be bound")


def test_the_scheduler_puts_every_pod_where_the_plan_has_it(scheduling: Cluster, workspace: PlanWorkspace) -> None:
    plan, made = uneven(workspace, "tight")
    join(scheduling, [node(f"tight-{number}", "tight", gpus=12) for number in range(2)])
    # The group on both nodes comes first, and one of them is far busier: the scheduler would rather have both pods on
    # the other, which another group needs.
    busy: Json = {
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "60", "memory": "900Gi"}}}]
    }
    busy["nodeName"] = max(only_on(made[0]))
    scheduling.kubectl(
        "create",
        "--filename=-",
        input=json.dumps(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "busy", "namespace": "ml"}, "spec": busy}
        ),
    )
    scheduling.kubectl("create", "--filename=-", input=json.dumps(made[0]))
    bound(scheduling, 2)
    scheduling.kubectl("create", "--filename=-", input=json.dumps(listed(*made[1:])))
    planned = Counter[tuple[str, str]]()
    for group in plan["groups"]:
        for share in group["nodes"]:
            # Groups that are alike are one entry, whose names are theirs in turn.
            names = unfold(share["name"])
            each = len(names) // group.get("count", 1)
            for at, name in enumerate(names):
                planned[str(group["index"] + at // each), name] += share["gpus"] // 4
    assert bound(scheduling, 6) == planned
