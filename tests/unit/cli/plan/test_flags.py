"""A run from flags: the same plan as that of a file, and one line for every mistake."""

import json
from pathlib import Path

import pytest
from gkm_cli.inputs.gpu_names import flavors_named
from support.cli.plan_files import FLAVOR, PlanWorkspace, listed, node, racks, run, run_plan


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def flags(workspace: PlanWorkspace, *arguments: object) -> tuple[int, str, str]:
    done = run_plan("--nodes", workspace.nodes, *arguments)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("typed", "spec"),
    [
        (("--group", 16), {}),
        (("--group", 16, "--pod", 4, "--spares", 1), {"gpusPerPod": 4, "spares": 1}),
        (("--group", 16, "--within", "domain"), {"within": "domain"}),
        (("--group", 16, "--within", "block", "--policy", "least-waste"), {"within": "block", "policy": "least-waste"}),
        (("--group", 8, "--balanced"), {"groupGPUs": 8, "balanced": True}),
        (("--group", 16, "--apart", "block"), {"apart": "block"}),
        (
            ("--group", 16, "--per-area", "domain,maxNodes=2", "--per-area", "block,groupsTogether=2,maxGroups=2"),
            {
                "perArea": [
                    {"level": "domain", "maxNodes": 2},
                    {"level": "block", "groupsTogether": 2, "maxGroups": 2},
                ]
            },
        ),
        (("--group", 16, "--selector", "region=default,block=b1"), {"selector": {"labels": {"block": "b1"}}}),
        (
            ("--group", 16, "--scope", "a=16,fabric.domain=rack3", "--scope", "b=32"),
            {
                "scopes": [
                    {"name": "a", "maxGPUs": 16, "selector": {"labels": {"fabric.domain": "rack3"}}},
                    {"name": "b", "maxGPUs": 32},
                ]
            },
        ),
        (("--group", 16, "--policy", "least-waste", "--flavor", FLAVOR.lower()), {"policy": "least-waste"}),
    ],
)
def test_flags_give_the_plan_of_the_file(
    workspace: PlanWorkspace, typed: tuple[object, ...], spec: dict[str, object]
) -> None:
    by_file = workspace.run_plan(
        "-o", "json", run=workspace.write("r.json", run("llama", **{"flavor": FLAVOR.lower(), **spec}))
    )
    code, out, err = flags(workspace, "--total-gpus", 32, *typed, "-o", "json")
    assert (code, err) == (0, "")
    assert out == by_file.stdout


def test_a_run_stays_within_the_level_that_a_flag_names(workspace: PlanWorkspace) -> None:
    """Two blocks of 64 GPUs: 96 GPUs need both, and 64 in pods of 8 fill one."""
    assert flags(workspace, "--total-gpus", 96, "--group", 16, "--within", "block")[0] == 3
    assert flags(workspace, "--total-gpus", 96, "--group", 16, "--within", "cluster")[0] == 0
    assert flags(workspace, "--total-gpus", 64, "--group", 16, "--within", "block")[0] == 0
    code, _, err = flags(workspace, "--total-gpus", 8, "--within", "rack")
    assert (code, "'rack'" in err) == (2, True)


def test_groups_lie_in_the_blocks_that_flags_ask_for(workspace: PlanWorkspace) -> None:
    """Two blocks: two groups lie apart, three cannot; three together fill most of a block."""
    apart = flags(workspace, "--total-gpus", 32, "--group", 16, "--apart", "block", "-o", "json")
    assert [group["block"] for group in json.loads(apart[1])["groups"]] == ["b0", "b1"]
    code, out, _ = flags(workspace, "--total-gpus", 48, "--group", 16, "--apart", "block")
    assert (code, "would fit, but not with at most 1 group in each block" in out) == (3, True)
    together = flags(workspace, "--total-gpus", 96, "--group", 16, "--per-area", "block,groupsTogether=3", "-o", "json")
    assert sum(group.get("count", 1) for group in json.loads(together[1])["groups"] if group["block"] == "b0") == 3


def test_a_balanced_run_from_flags_has_equal_shares(workspace: PlanWorkspace) -> None:
    """Six groups: racks of four would have 4 + 2, equal shares are 3 + 3."""
    code, out, _ = flags(workspace, "--total-gpus", 48, "--group", 8, "--balanced", "-o", "json")
    assert (code, [group.get("count", 1) for group in json.loads(out)["groups"]]) == (0, [3, 3])


def test_a_pod_takes_a_node_by_default_or_the_whole_group_where_that_is_smaller(workspace: PlanWorkspace) -> None:
    workspace.nodes = workspace.write("four.json", listed(*racks(gpus=4)))
    for typed, pod in (((64, 16), 4), ((8, 2), 2), ((2, None), 2)):
        group = () if typed[1] is None else ("--group", typed[1])
        code, out, err = flags(workspace, "--total-gpus", typed[0], *group, "-o", "json")
        assert (code, err, json.loads(out)["request"]["gpusPerPod"]) == (0, "", pod)


def test_of_nodes_of_two_sizes_the_more_frequent_one_is_that_of_a_pod(workspace: PlanWorkspace) -> None:
    mixed = [*racks(count=1, nodes=2, gpus=8), *(node(f"small-{at}", "rack1", gpus=4) for at in range(3))]
    workspace.nodes = workspace.write("mixed.json", listed(*mixed))
    code, out, _ = flags(workspace, "--total-gpus", 12, "-o", "json")
    assert (code, json.loads(out)["request"]["gpusPerPod"]) == (0, 4)


def test_a_malleable_run_is_reduced_to_what_fits(workspace: PlanWorkspace) -> None:
    code, out, _ = flags(workspace, "--total-gpus", 160, "--group", 16, "--step-gpus", 32, "--min-gpus", 64)
    assert code == 0
    assert "128 GPUs instead of 160" in out.splitlines()[0]


def test_a_run_from_flags_that_does_not_fit_is_exit_3(workspace: PlanWorkspace) -> None:
    code, out, _ = flags(workspace, "--total-gpus", 256, "--name", "big")
    assert code == 3
    assert out.startswith("big does not fit: ")


def test_the_only_flavor_is_the_default_and_of_several_none_is_chosen(workspace: PlanWorkspace) -> None:
    other = node("other", "rack9", "b9")
    other["metadata"]["labels"]["gpu.flavor"] = "A100"
    workspace.nodes = workspace.write("nodes.json", listed(*racks(), other))
    code, _, err = flags(workspace, "--total-gpus", 32)
    assert (code, err) == (2, "error: the nodes have GPUs of 2 flavors: a100, h100; choose one with --flavor\n")
    assert flags(workspace, "--total-gpus", 8, "--flavor", "a100")[0] == 0


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ((), "no run is given; name the file of a Run with --run, or describe one with --total-gpus"),
        (("--group", 16), "--group describes a run without --total-gpus; add it"),
        (("--scope", "a=8"), "--scope describes a run without --total-gpus; add it"),
        (("--spares", 1), "--spares describes a run without --total-gpus; add it"),
        (("--within", "block"), "--within describes a run without --total-gpus; add it"),
        (("--apart", "rack"), "--apart describes a run without --total-gpus; add it"),
        (("--per-area", "rack,maxNodes=1"), "--per-area describes a run without --total-gpus; add it"),
        (("--total-gpus", 8, "--per-area", "rack"), "--per-area 'rack' has no numbers"),
        (("--total-gpus", 8, "--per-area", "rack,maxNodes=x"), "--per-area 'rack,maxNodes=x' has no numbers"),
        (("--total-gpus", 8, "--per-area", "rack,maxNodes=1,maxNodes=2"), "has a key twice"),
        (("--total-gpus", 8, "--per-area", "room,maxNodes=1"), "the options: "),
        (("--total-gpus", 24, "--per-area", "block,groupsTogether=2"), "24 GPUs do not divide into 2 groups of 8"),
        (("--balanced",), "--balanced describes a run without --total-gpus; add it"),
        (("--total-gpus", 12), "the options: 12 GPUs do not divide into pods of 8; correct its spec"),
        (("--total-gpus", 0), "the options: "),
        (("--total-gpus", 10**12), "the options: "),
        (("--total-gpus", 8, "--name", "A B"), "metadata.name 'A B' is not a valid name"),
        (("--total-gpus", 8, "--scope", "a"), "--scope 'a' has no number of GPUs"),
        (("--total-gpus", 8, "--scope", "a=-1"), "--scope 'a=-1' has no number of GPUs"),
        (("--total-gpus", 8, "--scope", "a=" + "9" * 5000), "has no number of GPUs"),
        (("--total-gpus", 8, "--scope", "A B=8"), "the options: "),
        (("--total-gpus", 8, "--scope", "a=8,x"), "--scope: 'x' is not KEY=VALUE"),
        (("--total-gpus", 8, "--scope", "a=8", "--scope", "a=8"), "names each of its scopes once"),
        (("--total-gpus", 8, "--selector", "x"), "--selector: 'x' is not KEY=VALUE"),
        (("--total-gpus", 8, "--selector", "a=1,a=2"), "has a key twice"),
        (("--total-gpus", 8, "--selector", "a=\x1b[31m"), "is not a valid label"),
        (("--total-gpus", 8, "--step-gpus", 8), "the options: "),
        (("--total-gpus", 8, "--min-gpus", 16, "--step-gpus", 8), "minGPUs is more than spec.gpus"),
    ],
)
def test_a_mistake_is_one_line(workspace: PlanWorkspace, typed: tuple[object, ...], words: str) -> None:
    code, out, err = flags(workspace, *typed)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert "\x1b" not in err


def test_flags_and_files_are_not_mixed(workspace: PlanWorkspace) -> None:
    code, _, err = flags(workspace, "--total-gpus", 8, "--run", workspace.run)
    assert (code, err) == (2, "error: --run and --total-gpus both give a run; give one of them\n")
    done = run_plan("--total-gpus", 8, "--pods", workspace.nodes)
    assert (done.returncode, "--pods is given without --nodes" in done.stderr) == (2, True)


def test_the_help_says_what_each_policy_means() -> None:
    text = " ".join(run_plan("--help").stdout.split())
    for policy in ("fewest-domains: the fewest NVLink domains", "fewest-blocks: the fewest blocks", "least-waste: the"):
        assert policy in text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h100", ["nvidia-h100-80gb-hbm3"]),
        ("H100", ["nvidia-h100-80gb-hbm3"]),
        ("cuda:90:32", ["nvidia-h100-80gb-hbm3", "nvidia-h200"]),
        ("hip:gfx942:64", ["amd-instinct-mi300x"]),
        ("b200", []),
        ("nvidia", []),
    ],
)
def test_a_gpu_means_the_flavors_that_name_it(text: str, found: list[str]) -> None:
    assert flavors_named(text, ["nvidia-h100-80gb-hbm3", "nvidia-h200", "amd-instinct-mi300x"]) == found


def test_a_run_names_its_gpu_as_other_commands_do(workspace: PlanWorkspace) -> None:
    for name in ("h100", "cuda:90:32", "H100"):
        for option in ("--gpu", "--flavor"):
            code, out, err = flags(workspace, "--total-gpus", 8, option, name, "-o", "json")
            assert (code, json.loads(out)["flavor"].lower(), err) == (0, "h100", "")
    code, _, err = flags(workspace, "--total-gpus", 8, "--gpu", "cuda:80:32")
    assert (code, err) == (
        2,
        "error: no node has a flavor that names cuda:80:32: the nodes have h100; choose one with --flavor\n",
    ), "the next step was gkm topology show, which lists no flavors"
    code, _, err = flags(workspace, "--total-gpus", 8, "--gpu", "cuda:x:32")
    assert (code, "names no GPU" in err) == (2, True)
