"""`gkm plan unfold`: every node of a plan by its name, from files."""

import json
from collections import Counter
from pathlib import Path

import pytest
from support.cli.plan_files import Json, PlanWorkspace, run, run_plan


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


@pytest.fixture
def plan_file(workspace: PlanWorkspace) -> Path:
    """The plan of four groups of two nodes, with a spare pod each."""
    code, plan = workspace.plan(run=workspace.write("r.json", run(gpus=64, spares=1)))
    assert code == 0
    return workspace.write("plan.json", plan)


def test_a_group_is_a_line_of_names_and_its_spares_are_another(plan_file: Path) -> None:
    done = run_plan("unfold", plan_file)
    assert (done.returncode, done.stderr) == (0, "")
    found = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [head for head, _, _ in found] == [f"{number}{kind}" for number in range(4) for kind in ("", " spares")]
    counts = Counter(name for _, _, names in found for name in names.split(" "))
    # Four groups of two nodes and a spare each: 12 nodes of 16, none twice.
    assert (len(counts), max(counts.values())) == (12, 1)


def test_json_has_names_gpus_and_places(plan_file: Path) -> None:
    done = run_plan("unfold", plan_file, "-o", "json")
    result: Json = json.loads(done.stdout)
    plan = json.loads(plan_file.read_text())
    assert (result["hash"], result["gpus"]) == (plan["hash"], 64)
    for number, group in enumerate(result["groups"]):
        assert group["index"] == number
        assert sum(node["gpus"] for node in group["nodes"]) == group["gpus"] == 16
        assert group["nodeNames"] == [node["name"] for node in group["nodes"]]
        assert {name.split("-")[1] for name in group["nodeNames"]} == {group["domain"].removeprefix("rack")}
        assert [(spare["gpus"], spare["distance"]) for spare in group["spares"]] == [(8, "domain")]


def test_a_hostfile_has_a_slot_for_each_gpu_and_no_spares(plan_file: Path) -> None:
    done = run_plan("unfold", plan_file, "-o", "hostfile")
    hosts = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(hosts) == 8
    assert all(line.endswith(" slots=8") for line in hosts)


def test_text_of_labels_adds_no_line_to_a_hostfile(workspace: PlanWorkspace, plan_file: Path) -> None:
    plan = json.loads(plan_file.read_text())
    plan["groups"][0]["domain"] = "x\nevil slots=8\u2028evil slots=8"
    done = run_plan("unfold", workspace.write("evil.json", plan), "-o", "hostfile")
    assert done.returncode == 0
    assert not [line for line in done.stdout.splitlines() if line.startswith("evil")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no PlacementPlan"),
        ("{}", "missing required field"),
        ('{"kind": "Pod", "apiVersion": "v1"}', "is a Pod, not a PlacementPlan"),
    ],
)
def test_a_file_without_a_plan_is_one_line(workspace: PlanWorkspace, text: str, words: str) -> None:
    done = run_plan("unfold", workspace.write("wrong.json", text))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_a_plan_whose_names_do_not_match_its_groups_is_refused(workspace: PlanWorkspace, plan_file: Path) -> None:
    plan = json.loads(plan_file.read_text())
    plan["groups"][0]["nodes"][0]["name"] = "gpu-[0-999999]"
    done = run_plan("unfold", workspace.write("bomb.json", plan))
    assert (done.returncode, done.stdout) == (2, "")
    assert "group 0: the range 0-999999 has 1000000 names: 1 to 2 are possible here" in done.stderr


@pytest.mark.parametrize("form", ["list", "json", "hostfile"])
def test_a_plan_without_groups_is_refused_and_no_empty_hostfile(workspace: PlanWorkspace, form: str) -> None:
    _, plan = workspace.plan()
    done = run_plan("unfold", workspace.write("empty.json", plan | {"groups": []}), "-o", form)
    assert (done.returncode, done.stdout) == (2, "")
    assert "empty.json has no groups: a host file without nodes would start no process" in done.stderr


def test_options_before_the_command_are_refused(plan_file: Path) -> None:
    done = run_plan("--total-gpus", 8, "unfold", plan_file)
    assert (done.returncode, "there are options before unfold" in done.stderr) == (2, True)


def test_a_file_that_does_not_exist_is_one_line() -> None:
    done = run_plan("unfold", "./llama-1")
    assert (done.returncode, done.stderr) == (1, "error: llama-1: No such file or directory; check its name and mode\n")
