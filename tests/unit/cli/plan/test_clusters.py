"""Two clusters with domains of the same names in one list of nodes, in every form that `gkm plan` prints."""

import json
from pathlib import Path

import pytest
from support.cli.command import gkm_in_this_process
from support.cli.plan_files import FLAVOR, Json, PlanWorkspace, listed, node, run

UUID = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"


def located(name: str, domain: str, block: str = "b1", **labels: str) -> Json:
    found = node(name, domain, block)
    found["metadata"]["labels"] |= labels
    return found


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    """Domain A of block b1 in each of two clusters, of two nodes with 16 GPUs in all."""
    found = PlanWorkspace(tmp_path)
    nodes = [located(f"{cluster}-{at}", "A", cluster=cluster) for cluster in ("c1", "c2") for at in range(2)]
    found.nodes = found.write("nodes.json", listed(*nodes))
    return found


def test_a_domain_of_each_cluster_takes_groups_of_its_own(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan()

    assert (code, result["quarantined"], result["metrics"]["domains"], result["metrics"]["blocks"]) == (0, [], 2, 2)
    assert [(group["cluster"], group["block"], group["domain"]) for group in result["groups"]] == [
        ("c1", "b1", "A"),
        ("c2", "b1", "A"),
    ]
    assert [(row["cluster"], row["domain"]) for row in result["remaining"]["domains"]] == [("c1", "A"), ("c2", "A")]


def test_no_group_lies_in_two_clusters(workspace: PlanWorkspace) -> None:
    code, result = workspace.plan(run=workspace.write("large.json", run(groupGPUs=32)))

    assert (code, result["bindingLevel"]) == (3, "domain")


def test_the_table_and_the_pictures_name_the_cluster_of_each_domain(workspace: PlanWorkspace) -> None:
    table = workspace.run_plan("-o", "table").stdout
    assert {"c1/b1/A", "c2/b1/A"} <= set(table.split())
    for output in ("svg", "html"):
        drawn = workspace.run_plan("-o", output).stdout
        assert all(f">cluster {cluster}<" in drawn for cluster in ("c1", "c2"))
        assert drawn.count(">A<") == 2


def test_unfolded_plans_and_manifests_name_the_cluster(workspace: PlanWorkspace) -> None:
    plan = workspace.write("plan.json", workspace.plan()[1])
    unfolded = json.loads(gkm_in_this_process("plan", "unfold", str(plan), "-o", "json").stdout)
    assert [(group["cluster"], group["nodeNames"]) for group in unfolded["groups"]] == [
        ("c1", ["c1-0", "c1-1"]),
        ("c2", ["c2-0", "c2-1"]),
    ]
    hosts = gkm_in_this_process("plan", "unfold", str(plan), "-o", "hostfile").stdout
    manifests = workspace.run_plan("-o", "manifests").stdout
    for cluster in ("c1", "c2"):
        assert f"default/{cluster}/b1/A" in hosts
        assert f"default/{cluster}/b1/A" in manifests


@pytest.mark.parametrize(
    ("domains", "others", "level", "reason"),
    [
        (f"{UUID}.1", {"region": "us"}, "region", "DomainInSeveralRegions"),
        (f"{UUID}.1", {"cluster": "c2"}, "cluster", "DomainInSeveralClusters"),
        ("A", {"block": "b2"}, "block", "DomainInSeveralBlocks"),
        ("", {"block": "b2", "rack": "r1"}, "rack", "RackInSeveralBlocks"),
    ],
)
def test_the_level_at_which_labels_contradict_each_other_binds(
    workspace: PlanWorkspace, domains: str, others: dict[str, str], level: str, reason: str
) -> None:
    first = located("n1", domains or "d1", cluster="c1", rack="r1")
    nodes = workspace.write("nodes.json", listed(first, located("n2", domains or "d2", **{"cluster": "c1"} | others)))
    code, result = workspace.plan(nodes=nodes)

    assert (code, result["bindingLevel"], result["unusedNodes"]) == (3, level, {reason: 2})
    assert result["message"].startswith(f"0 of 2 nodes of its flavor can be used: 2 {reason}. ")
    assert result["message"].endswith(": it can be in one only")


def test_a_contradiction_of_another_flavor_is_not_why_a_run_does_not_fit(workspace: PlanWorkspace) -> None:
    nodes = [located(f"n{at}", "A", f"b{at}") for at in range(2)]
    files = workspace.write("nodes.json", listed(*nodes))
    code, result = workspace.plan(nodes=files, run=workspace.write("run.json", run(flavor=f"{FLAVOR}-other")))

    assert (code, result["bindingLevel"], result["message"]) == (
        3,
        "flavor",
        "0 of 2 nodes can be used: DomainInSeveralBlocks 2",
    )
