from pathlib import Path

import pytest
from gkm.api.node_names import unfold
from support.cli.plan_files import GPU, PlanWorkspace, listed, node, run
from support.cli.plan_manifests import jobs, only_on, uneven


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


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
    done = workspace.run_plan("-o", "manifests", "--image", " ")
    assert (done.returncode, "--image is empty" in done.stderr) == (2, True), done


def test_a_spread_constraint_applies_if_a_node_could_take_more_pods(workspace: PlanWorkspace) -> None:
    _, made = uneven(workspace, "even")
    spread = [job["spec"]["template"]["spec"].get("topologySpreadConstraints", []) for job in made]
    assert [len(only_on(job)) for job in made] == [2, 1, 1]
    assert spread[1:] == [[], []]
    (even,) = spread[0]
    assert (even["maxSkew"], even["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert even["labelSelector"] == {"matchLabels": {"batch.kubernetes.io/job-name": made[0]["metadata"]["name"]}}
