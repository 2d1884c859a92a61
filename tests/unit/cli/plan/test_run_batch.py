from pathlib import Path

import pytest
from support.cli.plan_files import Site, run

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
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_runs_that_fit_together_are_admitted_each_with_its_plan(site: Site) -> None:
    other = site.write("other.json", run("other", gpus=64))
    code, answer = site.plan("--run", other)
    assert (code, answer["rejected"]) == (0, [])
    assert {entry["run"]: entry["gpus"] for entry in answer["admitted"]} == {"ml/llama": 32, "ml/other": 64}
    assert (answer["objective"], answer["bound"], answer["gap"]) == (96, 96, 0)


def test_no_node_is_assigned_to_two_runs(site: Site) -> None:
    other = site.write("other.json", run("other", gpus=96))
    _, answer = site.plan("--run", other)
    places = [
        (group["domain"], group.get("count", 1) * group["gpus"])
        for one in answer["admitted"]
        for group in one["groups"]
    ]
    assert sum(gpus for _, gpus in places) == 128
    assert all(sum(gpus for place, gpus in places if place == rack) == 32 for rack, _ in places)


def test_the_higher_priority_is_admitted_first_and_the_other_run_has_a_reason(site: Site) -> None:
    code, answer = site.plan(run=site.write("two.yaml", TWO))
    (rejected,) = answer["rejected"]
    assert (code, [one["run"] for one in answer["admitted"]]) == (3, ["large"])
    assert (rejected["run"], rejected["reason"], rejected["fitsAlone"]) == ("small", "DoesNotFit", True)
    assert rejected["largestFeasibleGroups"] == 0
    # All that is free is taken, so only what others give back would help.
    assert {fix["kind"] for fix in rejected["fixes"]} <= {"free-nodes"}


def test_a_run_without_usable_nodes_does_not_block_other_runs(site: Site) -> None:
    other = site.write("other.json", run("other", flavor="B200"))
    code, answer = site.plan("--run", other)
    (rejected,) = answer["rejected"]
    assert (code, [one["run"] for one in answer["admitted"]]) == (3, ["ml/llama"])
    assert (rejected["bindingLevel"], rejected["unusedNodes"]) == ("flavor", {"OtherFlavor": 16})


def test_a_list_of_runs_is_as_good_as_documents(site: Site) -> None:
    runs = {"apiVersion": "v1", "kind": "List", "items": [run("a"), run("b")]}
    _, answer = site.plan(run=site.write("list.json", runs))
    assert {one["run"] for one in answer["admitted"]} == {"ml/a", "ml/b"}


def test_what_if_names_the_runs_that_change(site: Site) -> None:
    urgent = site.write("urgent.json", run("urgent", gpus=128, priority=9))
    code, answer = site.plan("--what-if", urgent)
    assert code == 3
    assert answer["whatIf"] == {
        "run": "ml/urgent",
        "admitted": True,
        "displaced": ["ml/llama"],
        "gained": [],
        "moved": [],
        "objectiveBefore": 32,
    }


def test_the_text_lists_admitted_and_refused_runs(site: Site) -> None:
    done = site.ask(run=site.write("two.yaml", TWO))
    assert done.returncode == 3
    assert done.stdout.startswith("1 of 2 runs fit: 128 GPUs")
    assert "small (alone it would fit): " in done.stdout
