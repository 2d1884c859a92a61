"""A wrong argument or an invalid file causes one line with a remedy, never a plan."""

from pathlib import Path
from unittest.mock import Mock

import gkm.packing.plan as planner
import pytest
from gkm.packing.self_check import InvalidPlanError
from gkm.packing.values import TooLargeError
from support.cli.plan_files import Json, PlanWorkspace, listed, node, pod, run, run_plan


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def spec(**changes: object) -> Json:
    return run("llama", **changes)


def without(path: str) -> Json:
    found = run()
    del found[path]
    return found


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("", "holds no Run"),
        ("a: [", "not YAML and not JSON"),
        ("just words", "not an object with a kind"),
        (run() | {"kind": "Pod"}, "is a Pod, not a Run"),
        (run() | {"apiVersion": "gkm.io/v2"}, "apiVersion gkm.io/v2, not gkm.io/v1alpha1"),
        (without("kind"), "without a kind"),
        (without("spec"), "spec"),
        (run() | {"sepc": {}}, "has no field sepc; spec may be meant"),
        (spec(gpuPerPod=4), "has no field spec.gpuPerPod; gpusPerPod may be meant"),
        (spec(selector={"labels": {"any": "one"}, "zone": "a"}), "has no field spec.selector.zone"),
        (spec(scopes=[{"name": "s", "maxGPUs": 8, "max": 1}]), "has no field spec.scopes[0].max"),
        (spec(gpus=0), "$.spec.gpus"),
        (spec(gpus="many"), "$.spec.gpus"),
        (spec(gpus=12), "12 GPUs do not divide into pods of 8"),
        (spec(groupGPUs=12), "do not divide into pods"),
        (spec(malleability={"stepGPUs": 8, "minGPUs": 64}), "minGPUs is more than spec.gpus"),
        (spec(scopes=[{"name": "s", "maxGPUs": 8}] * 2), "names each of its scopes once"),
        (spec(labels={"team": "a b"}), "spec.labels: 'team': 'a b' is not a valid label"),
        (spec(selector={"labels": {"/zone": "a"}}), "spec.selector.labels"),
        (spec(scopes=[{"name": "s", "maxGPUs": 8, "selector": {"labels": {"a": "-"}}}]), "spec.scopes[0].selector"),
        (run("Not A Name"), "not a valid name"),
        (run() | {"metadata": {"name": "a", "namespace": "\x1b[31m"}}, "metadata.namespace"),
        (listed(run(), "text"), "items[1] is not an object"),  # type: ignore[arg-type]
    ],
)
def test_a_file_without_valid_runs_is_refused_with_the_position(
    workspace: PlanWorkspace, manifest: object, words: str
) -> None:
    done = workspace.run_plan(run=workspace.write("wrong.yaml", manifest))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "wrong.yaml" in done.stderr or "two runs" in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


def test_a_document_among_several_is_named_by_its_number(workspace: PlanWorkspace) -> None:
    text = "---\n# nothing\n---\napiVersion: gkm.io/v1alpha1\nkind: Runn\n"
    done = workspace.run_plan(run=workspace.write("wrong.yaml", text))
    assert "document 2 is a Runn, not a Run" in done.stderr


def test_an_alias_of_millions_of_values_is_refused(workspace: PlanWorkspace) -> None:
    levels = "".join(f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 9))
    done = workspace.run_plan(run=workspace.write("bomb.yaml", f"a0: &a0 [x, x]\n{levels}kind: Run\n"))
    assert (done.returncode, "larger or deeper" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ("", "no list of nodes can be read"),
        ("NAME STATUS\ngpu-0 Ready\n", "give what `kubectl get nodes -o json` prints"),
        (listed(pod("p", "gpu-0", 8)), "items[0] is a Pod, no Node"),
        ({"kind": "PodList", "items": []}, "PodList, no list of nodes"),
    ],
)
def test_a_file_without_a_list_of_nodes_is_refused(workspace: PlanWorkspace, nodes: object, words: str) -> None:
    done = workspace.run_plan(nodes=workspace.write("other.json", nodes))
    assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_a_file_without_a_list_of_pods_is_refused(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("--pods", workspace.nodes)
    assert (done.returncode, "--pods" in done.stderr, "is a Node, no Pod" in done.stderr) == (2, True, True)


@pytest.mark.parametrize(
    ("previous", "words"),
    [
        ({"groups": []}, "missing required field"),
        ({"kind": "Run", "apiVersion": "gkm.io/v1alpha1"}, "is a Run, not a PlacementPlan"),
        ("[]", "not an object with a kind"),
    ],
)
def test_a_file_without_a_plan_is_refused(workspace: PlanWorkspace, previous: object, words: str) -> None:
    done = workspace.run_plan("--standing", workspace.write("standing.json", previous))
    assert (done.returncode, words in done.stderr) == (2, True)


def test_a_plan_is_of_one_run(workspace: PlanWorkspace) -> None:
    other = workspace.write("other.json", run("other"))
    several = workspace.write("several.json", listed(run("a"), run("b")))
    for done in (workspace.run_plan("--run", other), workspace.run_plan(run=several)):
        assert (done.returncode, done.stdout) == (2, "")
        assert "--run gives 2 runs (ml/" in done.stderr
        assert "a plan is of one run; give one of them" in done.stderr


def test_an_invalid_configuration_is_an_error_with_the_key(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("--config", workspace.write("config.yaml", "packing: {polcy: x}\n"))
    assert (done.returncode, "polcy" in done.stderr) == (1, True)


def test_a_missing_file_is_named(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan(nodes=Path("/nowhere/nodes.json"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: /nowhere/nodes.json: No such file")


def test_without_a_run_nothing_is_planned(workspace: PlanWorkspace) -> None:
    done = run_plan("--nodes", workspace.nodes)
    assert (done.returncode, "no run is given" in done.stderr) == (2, True), done


def test_eight_scopes_with_ceilings_are_planned_exactly(
    workspace: PlanWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The seconds are the last resort of a user on a slow machine; search nodes alone limit this search.
    monkeypatch.setattr(planner, "SECONDS", 600.0)
    nodes = workspace.write("many.json", listed(*(node(f"n{number}", f"d{number}") for number in range(100))))
    scopes = [{"name": f"s{number}", "maxGPUs": 264 + 8 * number} for number in range(8)]
    code, found = workspace.plan(
        nodes=nodes, run=workspace.write("scopes.json", run(gpus=800, groupGPUs=8, scopes=scopes))
    )
    assert code == 0
    assert found["metrics"]["gap"] == 0


def test_a_problem_too_large_for_an_exact_solution_is_an_error(
    workspace: PlanWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "verify", Mock(side_effect=TooLargeError("10^6 groups in 9 scopes")))
    done = workspace.run_plan(nodes=workspace.nodes, run=workspace.write("run.json", run()))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: run ml/llama cannot be planned: ")


def test_a_defect_of_the_planner_is_one_line_and_no_plan(
    workspace: PlanWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "verify", Mock(side_effect=InvalidPlanError("the planner made an invalid plan: why")))
    done = workspace.run_plan()
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be planned: the planner made an invalid plan: why" in done.stderr
    assert len(done.stderr.splitlines()) == 1
