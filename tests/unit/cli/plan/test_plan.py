import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.cli.plan_files import Json, Site, listed, node, pod, racks, run, shuffled


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def places(answer: Json) -> set[str]:
    return {group["domain"] for group in answer["groups"]}


def test_a_run_that_fits_is_answered_with_the_spec_of_its_plan(site: Site) -> None:
    code, answer = site.plan()
    assert code == 0
    assert answer["gpus"] == 32
    assert answer["request"] == {"gpus": 32, "gpusPerPod": 8, "groupGPUs": 16}
    assert answer["metrics"]["domains"] == answer["metrics"]["lowerBound"] == 1
    assert answer["metrics"]["gap"] == 0
    assert len(answer["hash"]) == len(answer["inventoryVersion"]) == 64
    assert [each["policy"] for each in answer["explanation"]["alternatives"] if each["chosen"]] == ["fewest-domains"]


def test_an_offline_plan_has_no_fields_of_the_cluster(site: Site) -> None:
    _, answer = site.plan()
    assert not {"run", "number", "supersedes", "expiresAt", "runGeneration"} & answer.keys()


def test_gpus_that_pods_take_are_not_planned(site: Site) -> None:
    pods = site.write("pods.json", listed(*(pod(f"p{rack}", f"gpu-{rack}-0", 8) for rack in (0, 1, 2))))
    _, answer = site.plan("--pods", pods)
    assert places(answer) == {"rack3"}
    assert answer["notes"] == []


def test_without_pods_all_gpus_are_free_and_a_note_states_this(site: Site) -> None:
    _, answer = site.plan()
    assert answer["notes"] == ["no --pods are given: every GPU counts as free"]


def test_pods_on_unlisted_nodes_cause_a_note(site: Site) -> None:
    pods = site.write("pods.json", listed(pod("p", "elsewhere", 8)))
    _, answer = site.plan("--pods", pods)
    assert "such as elsewhere" in answer["notes"][0]


def test_several_lists_are_one(site: Site) -> None:
    far = site.write("far.json", listed(*(node(f"far-{number}", "rack9", "b9") for number in range(8))))
    one = site.write("p1.json", listed(pod("a", "far-0", 8)))
    two = site.write("p2.json", listed(pod("b", "far-1", 8)))
    wide = site.write("wide.json", run(gpus=48, groupGPUs=48))
    code, answer = site.plan("--nodes", far, "--pods", one, "--pods", two, run=wide)
    assert (code, places(answer)) == (0, {"rack9"})
    assert site.plan(run=wide)[0] == 3


def test_standard_input_is_a_file_too(site: Site) -> None:
    done = site.ask("-o", "json", nodes=Path("-"))
    assert (done.returncode, "no list of nodes can be read" in done.stderr) == (2, True)
    twice = site.ask(nodes=Path("-"), run=Path("-"))
    assert (twice.returncode, "several options" in twice.stderr) == (2, True)


def test_the_order_of_nodes_changes_nothing(site: Site) -> None:
    answers = {
        site.ask("-o", "json", nodes=site.write(f"{seed}.json", listed(*shuffled(racks(), seed)))).stdout
        for seed in range(3)
    }
    assert len(answers) == 1


def test_the_policy_that_is_typed_is_that_of_the_plan(site: Site) -> None:
    asks = site.write("asks.json", run(policy="fewest-blocks"))
    assert site.plan(run=asks)[1]["policy"] == "fewest-blocks"
    assert site.plan("--policy", "least-waste", run=asks)[1]["policy"] == "least-waste"


def test_the_configuration_sets_policy_and_labels(site: Site) -> None:
    config = site.write("config.yaml", "packing: {policy: least-waste}\ntopology: {labels: {domain: [block]}}\n")
    wide = site.write("wide.json", run(gpus=64, groupGPUs=64))
    code, answer = site.plan("--config", config, run=wide)
    assert (code, answer["policy"]) == (0, "least-waste")
    assert places(answer) <= {"b0", "b1"}


def test_no_explain_leaves_the_explanation_out(site: Site) -> None:
    code, answer = site.plan("--no-explain")
    assert (code, "explanation" in answer) == (0, False)


def test_a_refusal_is_exit_3_with_the_level_and_the_fixes(site: Site) -> None:
    code, answer = site.plan(run=site.write("big.json", run(gpus=256)))
    assert code == 3
    assert answer["feasible"] is False
    assert (answer["bindingLevel"], answer["reason"]) == ("capacity", "DoesNotFit")
    # 128 GPUs are there, and a group has 16.
    assert answer["largestFeasibleGroups"] == 8
    assert {"kind": "smaller", "changes": {"gpus": 128}}.items() <= answer["fixes"][0].items()


def test_every_node_that_is_not_used_is_answered_with_the_reason(site: Site) -> None:
    other = node("other", "rack7", "b7")
    other["metadata"]["labels"]["gpu.flavor"] = "A100"
    nodes = [*racks(), node("cordoned", "rack0", "b0", unschedulable=True), other, node("odd", "rack1", "b9")]
    _, answer = site.plan(nodes=site.write("nodes.json", listed(*nodes)))
    assert answer["unusedNodes"] == {"Cordoned": 1, "DomainInSeveralBlocks": 5, "OtherFlavor": 1}
    assert {entry["node"] for entry in answer["quarantined"]} == {"odd", *(f"gpu-1-{number}" for number in range(4))}
    assert [(entry["reason"], entry["nodes"]) for entry in answer["excluded"]] == [
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
def test_without_usable_nodes_the_level_names_the_failed_check(site: Site, spec: Json, level: str) -> None:
    code, answer = site.plan(run=site.write("none.json", run(**spec)))
    assert (code, answer["bindingLevel"], answer["largestFeasibleGroups"]) == (3, level, 0)


def test_nodes_that_are_right_and_cannot_be_used_now_are_the_level_node(site: Site) -> None:
    nodes = site.write("nodes.json", listed(node("gpu-0", "rack0", unschedulable=True)))
    code, answer = site.plan(nodes=nodes)
    assert (code, answer["bindingLevel"], answer["unusedNodes"]) == (3, "node", {"Cordoned": 1})


def test_an_empty_list_of_nodes_is_a_valid_input(site: Site) -> None:
    code, answer = site.plan(nodes=site.write("nodes.json", listed()))
    assert (code, answer["message"]) == (3, "there are no nodes")


def test_planning_again_from_the_json_moves_only_groups_of_lost_nodes(site: Site) -> None:
    wide = site.write("wide.json", run(gpus=64, groupGPUs=32))
    _, before = site.plan(run=wide)
    standing = site.write("standing.json", before)
    lost = [item for item in racks() if item["metadata"]["labels"]["fabric.domain"] != before["groups"][0]["domain"]]
    code, answer = site.plan("--standing", standing, run=wide, nodes=site.write("left.json", listed(*lost)))
    assert code == 0
    assert (answer["replanned"]["moved"], answer["replanned"]["kept"]) == ([0], [1])


def test_gpus_of_the_previous_plan_are_free_unless_its_pods_are_pending(site: Site) -> None:
    nodes = site.write("one.json", listed(*racks(1)))
    whole = site.write("whole.json", run(gpus=32, groupGPUs=32))
    _, before = site.plan(run=whole, nodes=nodes)
    plan = {"apiVersion": "gkm.io/v1alpha1", "kind": "PlacementPlan", "metadata": {"name": "p"}, "spec": before}
    standing = site.write("standing.json", plan)
    pods = site.write("pods.json", listed(*(pod(f"p{number}", f"gpu-0-{number}", 8) for number in range(4))))
    asked = ("--standing", standing, "--pods", pods)
    assert site.plan(*asked, run=whole, nodes=nodes)[1]["replanned"]["kept"] == [0]
    assert site.plan(*asked, "--standing-waits", run=whole, nodes=nodes)[0] == 3


def test_yaml_and_json_are_equal(site: Site) -> None:
    done = site.ask("-o", "yaml")
    assert done.returncode == 0
    assert f"hash: {site.plan()[1]['hash']}" in done.stdout


def test_other_commands_do_not_wait_for_numpy() -> None:
    done = gkm("plan", "--help")
    assert (done.returncode, "--standing" in done.stdout) == (0, True)
    code = "import sys, gkm_cli.main; print('numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
