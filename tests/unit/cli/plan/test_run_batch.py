from pathlib import Path

import pytest
from support.cli.plan_files import PlanWorkspace, run

TWO = """\
apiVersion: gkm.io/v1alpha1
kind: Run
metadata: {name: small}
spec: {flavor: H100, gpus: 32, groupGPUs: 32}
---
apiVersion: gkm.io/v1alpha1
kind: Run
metadata: {name: large}
spec: {flavor: H100, gpus: 128, groupGPUs: 32, priority: 5}
"""


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def test_runs_that_fit_together_are_admitted_each_with_its_plan(workspace: PlanWorkspace) -> None:
    other = workspace.write("other.json", run("other", gpus=64))
    code, result = workspace.plan("--run", other)
    assert (code, result["rejected"]) == (0, [])
    assert {entry["run"]: entry["gpus"] for entry in result["admitted"]} == {"ml/llama": 32, "ml/other": 64}
    assert (result["objective"], result["bound"], result["gap"]) == (96, 96, 0)


def test_no_node_is_assigned_to_two_runs(workspace: PlanWorkspace) -> None:
    other = workspace.write("other.json", run("other", gpus=96))
    _, result = workspace.plan("--run", other)
    places = [
        (group["domain"], group.get("count", 1) * group["gpus"])
        for one in result["admitted"]
        for group in one["groups"]
    ]
    assert sum(gpus for _, gpus in places) == 128
    assert all(sum(gpus for place, gpus in places if place == rack) == 32 for rack, _ in places)


def test_the_higher_priority_is_admitted_first_and_the_other_run_has_a_reason(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan(run=workspace.write("two.yaml", TWO))
    (rejected,) = result["rejected"]
    assert (code, [one["run"] for one in result["admitted"]]) == (3, ["large"])
    assert (rejected["run"], rejected["reason"], rejected["fitsAlone"]) == ("small", "DoesNotFit", True)
    assert rejected["largestFeasibleGroups"] == 0
    # All that is free is taken, so only what others give back would help.
    assert {fix["kind"] for fix in rejected["fixes"]} <= {"free-nodes"}


def test_a_run_without_usable_nodes_does_not_block_other_runs(workspace: PlanWorkspace) -> None:
    other = workspace.write("other.json", run("other", flavor="B200"))
    code, result = workspace.plan("--run", other)
    (rejected,) = result["rejected"]
    assert (code, [one["run"] for one in result["admitted"]]) == (3, ["ml/llama"])
    assert (rejected["bindingLevel"], rejected["unusedNodes"]) == ("flavor", {"OtherFlavor": 16})


def test_a_list_of_runs_is_as_good_as_documents(workspace: PlanWorkspace) -> None:
    runs = {"apiVersion": "v1", "kind": "List", "items": [run("a"), run("b")]}
    _, result = workspace.plan(run=workspace.write("list.json", runs))
    assert {one["run"] for one in result["admitted"]} == {"ml/a", "ml/b"}


def test_what_if_names_the_runs_that_change(workspace: PlanWorkspace) -> None:
    urgent = workspace.write("urgent.json", run("urgent", gpus=128, priority=9))
    code, result = workspace.plan("--what-if", urgent)
    assert code == 3
    assert result["whatIf"] == {
        "run": "ml/urgent",
        "admitted": True,
        "displaced": ["ml/llama"],
        "gained": [],
        "moved": [],
        "objectiveBefore": 32,
    }


def test_the_text_lists_admitted_and_refused_runs(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan(run=workspace.write("two.yaml", TWO))
    assert done.returncode == 3
    assert done.stdout.startswith("1 of 2 runs fit: 128 GPUs")
    assert "small (alone it would fit): " in done.stdout
