import json
import re
from pathlib import Path

import pytest
from support.cli.plan_files import PlanWorkspace, listed, node, on_a_terminal, pod, racks, run


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_the_first_line_is_the_verdict_with_its_proof(workspace: PlanWorkspace) -> None:
    first = lines(workspace.run_plan().stdout)[0]
    assert first == (
        "ml/llama fits: 2 groups of 16 GPUs, 32 GPUs, in 1 domain of 1 block; 0 GPUs stranded; "
        "gap 0: no plan uses fewer domains"
    )


def test_the_chart_shows_planned_used_and_stranded_gpus(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("one.json", listed(*racks(1)))
    pods = workspace.write("pods.json", listed(pod("p", "gpu-0-0", 4)))
    text = lines(
        workspace.run_plan(
            "--pods", pods, nodes=nodes, run=workspace.write("one-run.json", run(gpus=16, spares=1))
        ).stdout
    )
    # 16 of the plan, 8 of its spare, 4 of others, 4 left: one sign a GPU.
    assert any("################++++++++====...." in line for line in text)


def test_groups_are_printed_as_ranges_with_their_nodes(workspace: PlanWorkspace) -> None:
    text = workspace.run_plan(run=workspace.write("r.json", run(gpus=64))).stdout
    rows = [line.split() for line in lines(text)]
    assert ["0-1", "b0/rack0", "gpu-0-[0-3]"] in rows
    assert ["2-3", "b0/rack1", "gpu-1-[0-3]"] in rows


def test_policies_are_compared_with_a_star_at_the_chosen_one(workspace: PlanWorkspace) -> None:
    text = workspace.run_plan("--policy", "least-waste").stdout
    assert [line.split()[1] for line in lines(text) if line.startswith("least-waste")] == ["*"]
    assert [line.split()[1] for line in lines(text) if line.startswith("fewest-")] != ["*", "*"]


def test_the_second_line_is_the_hash_of_the_plan(workspace: PlanWorkspace) -> None:
    _, result = workspace.plan()
    assert lines(workspace.run_plan().stdout)[1] == f"hash {result['hash']}"


def test_fragmentation_is_printed_by_level_and_for_the_worst_domains(workspace: PlanWorkspace) -> None:
    config = workspace.write("config.yaml", "packing: {mix: [{gpus: 16, gpusPerPod: 8, weight: 1}]}\n")
    run_file = workspace.write("r.json", run(gpus=8, groupGPUs=8))
    text = lines(workspace.run_plan("--config", config, run=run_file).stdout)
    rows = [line.split() for line in text]
    # Four racks of 32 GPUs, two in a block. The run takes 8, so one rack keeps 24, of which a group of 16 leaves 8.
    assert ["block", "2", "64", "8", "default/default/b0"] in rows
    assert [row[:4] for row in rows if row[:1] == ["domain"] and len(row) > 4] == [["domain", "4", "32", "8"]]
    assert any(row[1:] == ["24", "8", "24"] and row[0].endswith("/rack0") for row in rows if len(row) == 4)


def test_of_many_domains_some_are_drawn_and_the_rest_is_counted(workspace: PlanWorkspace) -> None:
    nodes = workspace.write("many.json", listed(*racks(100, nodes=1)))
    done = workspace.run_plan(nodes=nodes, run=workspace.write("r.json", run(gpus=800, groupGPUs=8)))
    assert "... and 60 more domains; -o json has all" in done.stdout


def test_a_refusal_has_a_reason_and_numbered_fixes(workspace: PlanWorkspace) -> None:
    text = lines(workspace.run_plan(run=workspace.write("big.json", run(gpus=256))).stdout)
    assert text[0].startswith("ml/llama does not fit: ")
    assert text[1] == "level capacity; largest that fits: 8 whole groups"
    assert any(line.startswith("1. ask for 128 GPUs instead of 256") for line in text)


def test_a_few_quarantined_nodes_are_named_and_all_are_counted(workspace: PlanWorkspace) -> None:
    wrong = [node(f"odd-{number:02}", f"d{number // 2}", f"b{number}") for number in range(40)]
    text = workspace.run_plan(nodes=workspace.write("n.json", listed(*racks(), *wrong))).stdout
    assert "16 of 56 may be used; not used: DomainInSeveralBlocks 40" in text
    assert "... and 32 more nodes; -o json has all" in text


def test_in_a_pipe_there_are_no_colours_and_no_other_alphabet(workspace: PlanWorkspace) -> None:
    text = workspace.run_plan().stdout
    assert text.isascii()
    assert "\x1b" not in text


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_gets_colours_and_lines_no_longer_than_it_is(workspace: PlanWorkspace, columns: int) -> None:
    text = on_a_terminal("--nodes", workspace.nodes, "--run", workspace.run, columns=columns)
    assert "\x1b[32m####" in text
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.split("\r\n")) <= columns


def test_text_in_lists_cannot_command_a_terminal(workspace: PlanWorkspace) -> None:
    evil = node("evil", "rack0")
    evil["metadata"]["labels"]["fabric.domain"] = "\x1b]0;owned\x07[red]"
    evil["metadata"]["name"] = "\x1b[2Jevil"
    text = workspace.run_plan(nodes=workspace.write("n.json", listed(*racks(), evil))).stdout
    assert "\x1b" not in text
    assert "Unreadable" in text


def test_planning_again_prints_unchanged_and_moved_groups(workspace: PlanWorkspace) -> None:
    wide = workspace.write("wide.json", run(gpus=64, groupGPUs=32))
    _, before = workspace.plan(run=wide)
    gone = before["groups"][0]["domain"]
    left = [item for item in racks() if item["metadata"]["labels"]["fabric.domain"] != gone]
    previous, nodes = workspace.write("standing.json", before), workspace.write("left.json", listed(*left))
    text = lines(workspace.run_plan("--standing", previous, nodes=nodes, run=wide).stdout)
    again = workspace.run_plan("--standing", previous, "-o", "json", nodes=nodes, run=wide)
    assert text[1] == f"hash {json.loads(again.stdout)['hash']}"
    assert text[2] == (
        "groups that stay: 1, that stay in their domains with other nodes: 0, that move: 1; spare pods used: 0"
    )
