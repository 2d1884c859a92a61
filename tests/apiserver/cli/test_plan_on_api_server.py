"""`gkm plan` and `gkm plan unfold` on a real API server: its pages, selectors and rights."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack
from support.chart.deploy_files import rendered
from support.cli.command import gkm
from support.cli.plan_files import Json, PlanWorkspace, pod, racks
from support.cli.why_site import NAMESPACE, why_site
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.cluster.rights import cluster_role_binding, until_rights_hold
from support.peers import require

READER = "reader"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two racks of four nodes; a pod takes five GPUs of gpu-1-0, and the plan llama-1 holds rack0."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    directory = tmp_path_factory.mktemp("plan")
    with why_site(directory) as made:
        cluster = made.cluster
        for item in racks(2):
            create(cluster, item)
        create(cluster, pod("busy", "gpu-1-0", 5) | {"metadata": {"name": "busy", "namespace": NAMESPACE}})
        create(cluster, a_plan(directory))
        cluster.apply(rendered() / "base" / "users.yaml")
        cluster.apply(cluster_role_binding("readers", "gkm-reader", {"kind": "User", "name": READER}))
        until_rights_hold(cluster)
        yield cluster


def create(cluster: Cluster, item: Json) -> None:
    meta = item["metadata"]
    if item["kind"] == "Pod":
        item["spec"]["containers"][0]["image"] = "registry.example/image:1"
    cluster.apply([{key: value for key, value in item.items() if key != "status"}])
    if item["kind"] == "Node":
        status = {"status": item["status"] | {"capacity": item["status"]["allocatable"]}}
        cluster.objects.merge("node", meta["name"], status, subresource="status")
        # Admission puts one on every new node.
        cluster.objects.merge("node", meta["name"], {"spec": {"taints": None}})


def a_plan(directory: Path) -> Json:
    code, spec = PlanWorkspace(directory).plan()
    assert code == 0
    soon = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = ("hash", "inventoryVersion", "policy", "flavor", "gpus", "request", "groups", "metrics")
    known = {key: spec[key] for key in fields} | {"run": "llama", "number": 1, "expiresAt": soon}
    metadata = {"name": "llama-1", "namespace": NAMESPACE}
    return {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "metadata": metadata, "spec": known}


def asked(site: Cluster, *arguments: object, user: str = READER) -> subprocess.CompletedProcess[str]:
    return gkm("plan", *arguments, "--kubeconfig", site.kubeconfig_for(user))


def test_a_run_from_flags_is_planned_on_what_pods_and_plans_leave(site: Cluster) -> None:
    done = asked(site, "--total-gpus", 24, "--group", 8, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert {group["domain"] for group in result["groups"]} == {"rack1"}
    # 27 GPUs of rack1 are free, 24 in whole nodes; rack0 is held by the plan.
    assert result["metrics"]["fragmentation"]["freeGPUs"] == 3
    more = asked(site, "--total-gpus", 32, "--group", 8, "-o", "json")
    assert (more.returncode, json.loads(more.stdout)["largestFeasibleGroups"]) == (3, 3)


def test_the_settings_and_trees_are_those_that_the_controllers_plan_with(site: Cluster) -> None:
    """By labels, rack1 has room for a group of 16; by the tree of ufm, each of its nodes is a domain of its own."""
    wanted = ("--total-gpus", 16, "--group", 16, "-o", "json")
    assert asked(site, *wanted).returncode == 0
    settings = "topology: {hyperNodes: {enabled: true}, providers: [{name: labels}, {name: ufm}]}"
    metadata = {"name": "gkm-config", "namespace": "gkm-system"}
    tree = pack(HyperNode(name, "nvlink", (Member("Node", name),)) for name in (f"gpu-1-{at}" for at in range(4)))
    made: list[Json] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": settings}},
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "ProviderTree",
            "metadata": {"name": "ufm"},
            "spec": {"state": "Serving", "revision": 1, "tree": tree},
        },
    ]
    site.apply([namespace("gkm-system")])
    try:
        site.apply(made)
        done = asked(site, *wanted)
        assert (done.returncode, done.stderr) == (3, ""), "the plan is by labels, and not by the tree of the provider"
        assert not [note for note in json.loads(done.stdout)["notes"] if "ufm" in note or "gkm-config" in note]
    finally:
        for one in made:
            site.objects.delete(one)


def test_a_plan_of_the_cluster_is_unfolded(site: Cluster) -> None:
    done = asked(site, "unfold", "llama-1", "-n", NAMESPACE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0: gpu-0-0 gpu-0-1\n1: gpu-0-2 gpu-0-3\n"


def test_a_plan_that_does_not_exist_is_one_line(site: Cluster) -> None:
    done = asked(site, "unfold", "llama-7", "-n", NAMESPACE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: there is no PlacementPlan llama-7 in the namespace {NAMESPACE}; ")


def test_the_topology_of_the_cluster_has_what_pods_leave(site: Cluster) -> None:
    done = gkm("topology", "show", "-o", "json", "--kubeconfig", site.kubeconfig_for(READER))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    # Eight nodes of eight GPUs; a pod has five. The plan holds GPUs that its pods do not use yet.
    assert (found["gpus"], found["freeGPUs"]) == (64, 59)
    assert {each["name"]: each["freeGPUs"] for each in found["domains"] if each["name"].startswith("rack")} == {
        "rack0": 32,
        "rack1": 27,
    }


def test_without_rights_the_missing_one_is_named(site: Cluster) -> None:
    done = asked(site, "--total-gpus", 8, user="stranger")
    assert (done.returncode, done.stdout) == (1, "")
    assert "missing right: list nodes" in done.stderr
