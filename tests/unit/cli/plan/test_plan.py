import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.cli.plan_files import Json, PlanWorkspace, listed, node, pod, racks, run, shuffled
from support.topology.claims import claim


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def places(result: Json) -> set[str]:
    return {group["domain"] for group in result["groups"]}


def test_a_run_that_fits_is_answered_with_the_spec_of_its_plan(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan()
    assert code == 0
    assert result["gpus"] == 32
    assert result["request"] == {"gpus": 32, "gpusPerPod": 8, "groupGPUs": 16}
    assert result["metrics"]["domains"] == result["metrics"]["lowerBound"] == 1
    assert result["metrics"]["gap"] == 0
    assert len(result["hash"]) == len(result["inventoryVersion"]) == 64
    assert [each["policy"] for each in result["explanation"]["alternatives"] if each["chosen"]] == ["fewest-domains"]


def test_an_offline_plan_has_no_fields_of_the_cluster(workspace: PlanWorkspace) -> None:
    _, result = workspace.plan()
    assert not {"run", "number", "supersedes", "expiresAt", "runGeneration"} & result.keys()


def test_gpus_that_pods_take_are_not_planned(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(*(pod(f"p{rack}", f"gpu-{rack}-0", 8) for rack in (0, 1, 2))))
    _, result = workspace.plan("--pods", pods)
    assert places(result) == {"rack3"}
    assert result["notes"] == []


def test_gpus_that_claims_hold_are_not_planned(workspace: PlanWorkspace) -> None:
    """Claims hold a GPU of three racks; a pod with a claim needs no note where claims are given."""
    with_claim = pod("p0", "gpu-0-0", 0)
    with_claim["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": "c0"}]
    pods = workspace.write("pods.json", listed(with_claim))
    assert "ResourceClaims and no nvidia.com/gpu" in workspace.plan("--pods", pods)[1]["notes"][0]
    claims = workspace.write("claims.json", listed(*(claim(f"c{at}", f"gpu-{at}-0", "gpu-0") for at in (0, 1, 2))))
    _, result = workspace.plan("--pods", pods, "--claims", claims)
    assert (places(result), result["notes"]) == ({"rack3"}, [])
    done = workspace.run_plan("--claims", claims)
    assert (done.returncode, "--claims is given without --pods; give both" in done.stderr) == (2, True)


def test_without_pods_all_gpus_are_free_and_a_note_states_this(workspace: PlanWorkspace) -> None:
    _, result = workspace.plan()
    assert result["notes"] == ["no --pods are given: every GPU is taken as free"]


def test_a_refusal_names_the_pods_that_hold_gpus(workspace: PlanWorkspace) -> None:
    named = {"a": 8, "b": 4, "c": 8, "d": 2}
    pods = workspace.write(
        "pods.json", listed(*(pod(name, f"gpu-{at}-0", n) for at, (name, n) in enumerate(named.items())))
    )
    code, result = workspace.plan("--pods", pods, run=workspace.write("all.json", run(gpus=128, groupGPUs=16)))
    assert (code, result["bindingLevel"]) == (3, "capacity")
    assert result["message"].endswith(". Of 128 GPUs pods hold 22 (most: ml/a 8, ml/c 8, ml/b 4)")


def test_a_run_that_fits_in_two_blocks_is_refused_within_one_and_may_leave_it(workspace: PlanWorkspace) -> None:
    wide = workspace.write("wide.json", run(gpus=96, groupGPUs=16, within="block"))
    code, result = workspace.plan(run=wide)
    assert (code, result["bindingLevel"]) == (3, "block")
    assert result["message"].startswith("6 groups of 16 GPUs would fit, but not within one block; the largest has room")
    assert result["fixes"][0]["message"] == "let the run leave its block, and stay within one cluster"
    assert result["fixes"][0]["kind"] == "leave-area"


def test_pods_on_unlisted_nodes_cause_a_note(workspace: PlanWorkspace) -> None:
    pods = workspace.write("pods.json", listed(pod("p", "elsewhere", 8)))
    _, result = workspace.plan("--pods", pods)
    assert "such as elsewhere" in result["notes"][0]


def test_several_lists_are_one(workspace: PlanWorkspace) -> None:
    far = workspace.write("far.json", listed(*(node(f"far-{number}", "rack9", "b9") for number in range(8))))
    one = workspace.write("p1.json", listed(pod("a", "far-0", 8)))
    two = workspace.write("p2.json", listed(pod("b", "far-1", 8)))
    wide = workspace.write("wide.json", run(gpus=48, groupGPUs=48))
    code, result = workspace.plan("--nodes", far, "--pods", one, "--pods", two, run=wide)
    assert (code, places(result)) == (0, {"rack9"})
    assert workspace.plan(run=wide)[0] == 3


def test_a_node_that_is_listed_twice_without_a_difference_is_one_node(workspace: PlanWorkspace) -> None:
    again = workspace.write("again.json", listed(*racks(), *shuffled(racks(), 1)))
    _, once = workspace.plan()
    _, twice = workspace.plan("--nodes", workspace.nodes, nodes=again)
    assert twice["quarantined"] == []
    assert twice == once


def test_nodes_of_one_name_that_differ_are_quarantined_with_what_to_do(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("nodes.json", listed(*racks(), node("gpu-0-0", "rack0", "b0", gpus=4)))
    _, result = workspace.plan(nodes=nodes)
    why = {(entry["node"], entry["reason"], entry["message"]) for entry in result["quarantined"]}
    assert why == {("gpu-0-0", "DuplicateName", "2 nodes have this name and differ: list one of them")}


def test_standard_input_is_a_file_too(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("-o", "json", nodes=Path("-"))
    assert (done.returncode, "no list of nodes can be read" in done.stderr) == (2, True)
    twice = workspace.run_plan(nodes=Path("-"), run=Path("-"))
    assert (twice.returncode, "several options" in twice.stderr) == (2, True)


def test_the_order_of_nodes_changes_nothing(workspace: PlanWorkspace) -> None:
    results = {
        workspace.run_plan("-o", "json", nodes=workspace.write(f"{seed}.json", listed(*shuffled(racks(), seed)))).stdout
        for seed in range(3)
    }
    assert len(results) == 1


def test_the_policy_that_is_typed_is_that_of_the_plan(workspace: PlanWorkspace) -> None:
    run_file = workspace.write("asks.json", run(policy="fewest-blocks"))
    assert workspace.plan(run=run_file)[1]["policy"] == "fewest-blocks"
    assert workspace.plan("--policy", "least-waste", run=run_file)[1]["policy"] == "least-waste"


def test_the_configuration_sets_policy_and_labels(workspace: PlanWorkspace) -> None:
    config = workspace.write("config.yaml", "packing: {policy: least-waste}\ntopology: {labels: {domain: [block]}}\n")
    wide = workspace.write("wide.json", run(gpus=64, groupGPUs=64))
    code, result = workspace.plan("--config", config, run=wide)
    assert (code, result["policy"]) == (0, "least-waste")
    assert places(result) <= {"b0", "b1"}


def test_no_explain_leaves_the_explanation_out(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan("--no-explain")
    assert (code, "explanation" in result) == (0, False)


def test_a_refusal_is_exit_3_with_the_level_and_the_fixes(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan(run=workspace.write("big.json", run(gpus=256)))
    assert code == 3
    assert result["feasible"] is False
    assert (result["bindingLevel"], result["reason"]) == ("capacity", "DoesNotFit")
    # 128 GPUs are there, and a group has 16.
    assert result["largestFeasibleGroups"] == 8
    assert {"kind": "smaller", "changes": {"gpus": 128}}.items() <= result["fixes"][0].items()


def test_every_node_that_is_not_used_is_answered_with_the_reason(workspace: PlanWorkspace) -> None:
    other = node("other", "rack7", "b7")
    other["metadata"]["labels"]["gpu.flavor"] = "A100"
    nodes = [*racks(), node("cordoned", "rack0", "b0", unschedulable=True), other, node("odd", "rack1", "b9")]
    _, result = workspace.plan(nodes=workspace.write("nodes.json", listed(*nodes)))
    assert result["unusedNodes"] == {"Cordoned": 1, "DomainInSeveralBlocks": 5, "OtherFlavor": 1}
    assert {entry["node"] for entry in result["quarantined"]} == {"odd", *(f"gpu-1-{number}" for number in range(4))}
    assert [(entry["reason"], entry["nodes"]) for entry in result["excluded"]] == [
        ("Cordoned", "cordoned"),
        ("OtherFlavor", "other"),
    ]


@pytest.mark.parametrize(
    ("spec", "level"),
    [
        ({"flavor": "B200"}, "flavor"),
        ({"selector": {"region": "moon"}}, "selector"),
        ({"scopes": [{"name": "s", "maxGPUs": 64, "selector": {"region": "moon"}}]}, "scope"),
    ],
)
def test_without_usable_nodes_the_level_names_the_failed_check(
    workspace: PlanWorkspace, spec: Json, level: str
) -> None:
    code, result = workspace.plan(run=workspace.write("none.json", run(**spec)))
    assert (code, result["bindingLevel"], result["largestFeasibleGroups"]) == (3, level, 0)


def test_nodes_that_are_right_and_cannot_be_used_now_are_the_level_node(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("nodes.json", listed(node("gpu-0", "rack0", unschedulable=True)))
    code, result = workspace.plan(nodes=nodes)
    assert (code, result["bindingLevel"], result["unusedNodes"]) == (3, "node", {"Cordoned": 1})


def test_an_empty_list_of_nodes_is_a_valid_input(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan(nodes=workspace.write("nodes.json", listed()))
    assert (code, result["message"]) == (3, "there are no nodes")


def test_planning_again_from_the_json_moves_only_groups_of_lost_nodes(workspace: PlanWorkspace) -> None:
    wide = workspace.write("wide.json", run(gpus=64, groupGPUs=32))
    _, before = workspace.plan(run=wide)
    previous = workspace.write("standing.json", before)
    lost = [item for item in racks() if item["metadata"]["labels"]["fabric.domain"] != before["groups"][0]["domain"]]
    code, result = workspace.plan("--standing", previous, run=wide, nodes=workspace.write("left.json", listed(*lost)))
    assert code == 0
    assert (result["replanned"]["moved"], result["replanned"]["kept"]) == ([0], [1])


def test_gpus_of_the_previous_plan_are_free_unless_its_pods_are_pending(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("one.json", listed(*racks(1)))
    whole = workspace.write("whole.json", run(gpus=32, groupGPUs=32))
    _, before = workspace.plan(run=whole, nodes=nodes)
    plan = {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "metadata": {"name": "p"}, "spec": before}
    previous = workspace.write("standing.json", plan)
    pods = workspace.write("pods.json", listed(*(pod(f"p{number}", f"gpu-0-{number}", 8) for number in range(4))))
    arguments = ("--standing", previous, "--pods", pods)
    assert workspace.plan(*arguments, run=whole, nodes=nodes)[1]["replanned"]["kept"] == [0]
    assert workspace.plan(*arguments, "--standing-waits", run=whole, nodes=nodes)[0] == 3


def test_yaml_and_json_are_equal(workspace: PlanWorkspace) -> None:
    done = workspace.run_plan("-o", "yaml")
    assert done.returncode == 0
    assert f"hash: {workspace.plan()[1]['hash']}" in done.stdout


def test_other_commands_do_not_wait_for_numpy() -> None:
    done = gkm("plan", "--help")
    assert (done.returncode, "--standing" in done.stdout) == (0, True)
    code = "import sys, gkm_cli.main; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
