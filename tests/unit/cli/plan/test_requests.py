"""`gkm plan` uses no node where the pods of the run cannot start, and says which ones and why."""

from pathlib import Path

import pytest
import yaml
from support.cli.plan_files import GPU, Json, PlanWorkspace, listed, node, run, run_plan

TAKEN = {
    "InsufficientCPU": {"cpu": "191"},
    "InsufficientMemory": {"memory": "1900Gi"},
}


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    found = PlanWorkspace(tmp_path)
    found.nodes = found.write("nodes.json", listed(*(whole(name) for name in ("a", "b"))))
    return found


def whole(name: str) -> Json:
    item = node(name, name)
    item["status"]["allocatable"] |= {"cpu": "192", "memory": "2Ti", "pods": "110"}
    return item


def cpu_pod(name: str, on: str, **requests: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("reason", TAKEN)
def test_a_node_without_free_cpu_or_memory_is_not_planned(workspace: PlanWorkspace, reason: str) -> None:
    pods = workspace.write("pods.json", listed(cpu_pod("other", "a", **TAKEN[reason])))
    one = workspace.write("one.json", run(gpus=8, groupGPUs=8))
    code, result = workspace.plan("--pods", pods, run=one)
    assert (code, result["unusedNodes"]) == (0, {reason: 1})
    assert [group["domain"] for group in result["groups"]] == ["b"]
    assert result["excluded"][0]["nodes"] == "a"
    two = workspace.write("two.json", run(gpus=16, groupGPUs=8))
    assert workspace.plan("--pods", pods, run=two)[0] == 3


def test_the_table_says_what_is_free_there(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(cpu_pod("other", "a", cpu="191")))
    done = run_plan("--nodes", workspace.nodes, "--pods", pods, "--total-gpus", 8)
    assert done.returncode == 0
    assert "node a is InsufficientCPU: 1 of 192 CPUs are free, and a pod needs 21.33" in done.stdout
    assert "note: CPU or memory of a pod is not given (spec.requests, or --cpu and --memory)" in done.stdout


def test_a_node_without_a_slot_for_a_pod_is_not_planned(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(*(cpu_pod(f"p{number}", "a") for number in range(110))))
    done = run_plan("--nodes", workspace.nodes, "--pods", pods, "--total-gpus", 16, "--group", 8)
    assert done.returncode == 3
    assert "node a is TooManyPods: 0 of 110 slots for pods are free, and a pod needs 1" in done.stdout


def test_requests_of_the_run_count_in_place_of_a_share_and_need_no_note(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(cpu_pod("other", "a", cpu="180")))
    given = ("--nodes", workspace.nodes, "--pods", pods, "--total-gpus", 16, "--group", 8, "--memory", "64Gi")
    refused = run_plan(*given, "--cpu", 13)
    assert refused.returncode == 3
    assert "node a is InsufficientCPU: 12 of 192 CPUs are free, and a pod needs 13" in refused.stdout
    done = run_plan(*given, "--cpu", "12")
    assert done.returncode == 0
    assert "is not given" not in done.stdout


def test_requests_in_the_file_of_a_run_are_those_of_the_flags(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(cpu_pod("other", "a", cpu="180")))
    for cpu, code in ((13, 3), ("12000m", 0)):
        one = workspace.write("run.json", run(gpus=16, groupGPUs=8, requests={"cpu": cpu, "memory": "64Gi"}))
        assert workspace.plan("--pods", pods, run=one)[0] == code


def test_the_jobs_of_a_plan_have_the_requests(workspace: PlanWorkspace) -> None:
    done = run_plan("--nodes", workspace.nodes, "--total-gpus", 8, "--cpu", "12", "--memory", "64Gi", "-o", "manifests")
    resources = yaml.load(done.stdout, yaml.CSafeLoader)["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {GPU: "8"}, "requests": {"cpu": "12", "memory": "64Gi"}}


def test_a_request_that_is_no_quantity_is_wrong_usage(workspace: PlanWorkspace) -> None:
    done = run_plan("--nodes", workspace.nodes, "--total-gpus", 8, "--cpu", "many")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'many' is no number of CPUs" in done.stderr


def test_the_run_of_a_plan_may_stay_where_its_own_pods_took_the_cpus(workspace: PlanWorkspace) -> None:
    one = workspace.write("one.json", run(gpus=16, groupGPUs=8))
    _, made = workspace.plan(run=one)
    standing = workspace.write("plan.json", {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "spec": made})
    own = [cpu_pod(f"own-{name}", name, cpu="190", **{GPU: "8"}) for name in ("a", "b")]
    pods = workspace.write("pods.json", listed(*own))
    code, result = workspace.plan("--pods", pods, "--standing", standing, run=one)
    assert (code, result["replanned"]["moved"]) == (0, [])
