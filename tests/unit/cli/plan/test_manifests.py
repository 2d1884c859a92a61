import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.node_names import unfold
from support.cli.plan_files import GPU, Json, PlanWorkspace, listed, node, run
from support.cluster.cluster import Cluster
from support.peers import require


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def jobs(done: subprocess.CompletedProcess[str]) -> list[Json]:
    return list(yaml.safe_load_all(done.stdout))


def only_on(job: Json) -> set[str]:
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {name for term in terms for field in term["matchFields"] for name in field["values"]}


def test_every_group_is_a_job_whose_pods_may_go_to_its_nodes_alone(workspace: PlanWorkspace) -> None:
    wide = workspace.write("wide.json", run(gpus=64, groupGPUs=32))
    _, plan = workspace.plan(run=wide)
    made = jobs(workspace.run_plan("-o", "manifests", "--image", "train:1", run=wide))
    planned = [set(unfold(group["nodes"][0]["name"])) for group in plan["groups"]]
    assert [only_on(job) for job in made] == planned
    assert [job["spec"]["completions"] for job in made] == [4, 4]
    assert {job["metadata"]["labels"]["gkm.io/run"] for job in made} == {"llama"}
    assert {job["metadata"]["annotations"]["gkm.io/plan-hash"] for job in made} == {plan["hash"]}


def test_a_container_requests_the_gpus_of_a_pod_and_has_the_tolerations_of_the_run(workspace: PlanWorkspace) -> None:
    run_file = workspace.write("asks.json", run(gpusPerPod=4, tolerations=[{"key": "team", "operator": "Exists"}]))
    pods = [
        job["spec"]["template"]["spec"]
        for job in jobs(workspace.run_plan("-o", "manifests", "--image", "train:1", run=run_file))
    ]
    assert all(found["containers"][0]["resources"]["limits"] == {GPU: "4"} for found in pods)
    assert all(found["containers"][0]["image"] == "train:1" for found in pods)
    assert all(found["tolerations"] == [{"key": "team", "operator": "Exists"}] for found in pods)


def test_the_labels_of_a_run_are_those_of_its_pods(workspace: PlanWorkspace) -> None:
    labels = {"team": "a", "kueue.x-k8s.io/queue-name": "gpus", "empty": ""}
    run_file = workspace.write("asks.json", run(labels=labels))
    _, plan = workspace.plan(run=run_file)
    assert plan["labels"] == labels
    made = jobs(workspace.run_plan("-o", "manifests", run=run_file))
    assert made
    for job in made:
        own = {key: job["metadata"]["labels"][key] for key in ("gkm.io/run", "gkm.io/group")}
        assert own["gkm.io/run"] == "llama"
        assert job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"] == labels | own


def test_a_label_of_a_run_cannot_replace_a_label_of_the_owner(workspace: PlanWorkspace) -> None:
    forged = {
        "gkm.io/run": "other",
        "gkm.io/group": "7",
        "job-name": "other",
        "controller-uid": "0",
        "batch.kubernetes.io/job-name": "other",
        "batch.kubernetes.io/controller-uid": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    run_file = workspace.write("asks.json", run(labels=forged | {"team": "a"}))
    made = jobs(workspace.run_plan("-o", "manifests", run=run_file))
    assert {tuple(sorted(job["spec"]["template"]["metadata"]["labels"].items())) for job in made} == {
        (("gkm.io/group", str(number)), ("gkm.io/run", "llama"), ("team", "a")) for number in range(2)
    }


def test_pods_of_a_group_that_are_dealt_out_unevenly_are_jobs_of_their_own(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("nodes.json", listed(node("a", "d", gpus=8), node("b", "d", gpus=4)))
    done = workspace.run_plan(
        "-o", "manifests", nodes=nodes, run=workspace.write("r.json", run(gpus=12, groupGPUs=12, gpusPerPod=4))
    )
    assert [(only_on(job), job["spec"]["completions"]) for job in jobs(done)] == [({"a"}, 2), ({"b"}, 1)]


def test_of_a_run_that_does_not_fit_nothing_can_be_applied(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("-o", "manifests", run=workspace.write("big.json", run(gpus=256)))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("ml/llama does not fit: ")


@pytest.mark.parametrize("name", ["a.b", "a-b", "r" * 63, "r" * 62 + "x", "1.2", "model-7.v1"])
def test_a_job_is_named_after_its_run_in_one_short_label(workspace: PlanWorkspace, name: str) -> None:
    for job in jobs(workspace.run_plan("-o", "manifests", run=workspace.write("named.json", run(name)))):
        assert len(f"{job['metadata']['name']}-99999") <= 63
        assert "." not in job["metadata"]["name"]
        assert len(job["metadata"]["labels"]["gkm.io/run"]) <= 63


def test_no_two_runs_have_jobs_of_one_name(workspace: PlanWorkspace) -> None:
    names = ["a.b", "a-b", "r" * 63, "r" * 62 + "x"]
    made = [jobs(workspace.run_plan("-o", "manifests", run=workspace.write("named.json", run(name)))) for name in names]
    assert len({job["metadata"]["name"] for each in made for job in each}) == sum(len(each) for each in made)


def test_an_image_without_a_name_is_refused(workspace: PlanWorkspace) -> None:
    assert workspace.run_plan("-o", "manifests", "--image", " ").returncode == 2


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


@pytest.mark.partners
def test_the_api_server_accepts_the_manifests_as_they_are(cluster: Cluster, workspace: PlanWorkspace) -> None:
    if not cluster.exists("namespace", "ml"):
        cluster.kubectl("create", "namespace", "ml")
    labels = {"team": "a", "job-name": "other", "controller-uid": "0", "gkm.io/run": "other"}
    run_file = workspace.write("asks.json", run("a" * 60 + ".v1", gpusPerPod=4, spares=1, labels=labels))
    done = workspace.run_plan("-o", "manifests", run=run_file)
    said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "--filename", "-", input=done.stdout)
    assert said.count("created (server dry run)") == len(jobs(done)) == 2


def uneven(workspace: PlanWorkspace, name: str) -> tuple[Json, list[Json]]:
    """Return the plan and the Jobs of three groups of two pods of 4 GPUs, on two nodes of 12.

    Two of them have a node each, the third has what they leave, a pod on each: its Job comes first here.
    """
    nodes = workspace.write("nodes.json", listed(node(f"{name}-0", name, gpus=12), node(f"{name}-1", name, gpus=12)))
    run_file = workspace.write("asks.json", run(name, gpus=24, groupGPUs=8, gpusPerPod=4))
    _, plan = workspace.plan(nodes=nodes, run=run_file)
    made = jobs(workspace.run_plan("-o", "manifests", nodes=nodes, run=run_file))
    return plan, sorted(made, key=lambda job: -len(only_on(job)))


def test_a_spread_constraint_applies_if_a_node_could_take_more_pods(workspace: PlanWorkspace) -> None:
    _, made = uneven(workspace, "even")
    spread = [job["spec"]["template"]["spec"].get("topologySpreadConstraints", []) for job in made]
    assert [len(only_on(job)) for job in made] == [2, 1, 1]
    assert spread[1:] == [[], []]
    (even,) = spread[0]
    assert (even["maxSkew"], even["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert even["labelSelector"] == {"matchLabels": {"batch.kubernetes.io/job-name": made[0]["metadata"]["name"]}}


@pytest.mark.partners
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
