"""`gkm topology check`, `gkm topology build` and `gkm plan` give one answer about the same labels."""

from pathlib import Path
from typing import Any

import pytest
from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.lists import NodeList
from gkm.topology.nodes import Node
from gkm.topology.survey import survey_nodes
from gkm_cli.topology import hygiene
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from support.cli.command import gkm_in_this_process
from support.examples import examples
from support.topology.clusters import labeled, written
from support.topology.kube_lists import Json

CLIQUE_LABEL = "nvidia__com/gpu__clique"
ZERO = "00000000-0000-0000-0000-000000000000"
CLIQUE = "00000001-0000-4000-8000-000000000000.1"


def answers(nodes: Path, *plan: object, config: Path | None = None) -> tuple[Any, Any]:
    """Return what `gkm topology check` and `gkm plan` do, each with its exit code and its output."""
    configured = () if config is None else ("--config", config)
    return (
        gkm_in_this_process("topology", "check", "--nodes", nodes, *configured),
        gkm_in_this_process("plan", "--nodes", nodes, *configured, *plan),
    )


@pytest.mark.parametrize("name", [f"{ZERO}.0", f"{ZERO}.3", "N.A", "0"])
def test_nodes_whose_label_names_no_clique_are_no_domain(tmp_path: Path, name: str) -> None:
    nodes = written(tmp_path / "nodes.json", *(labeled(f"h{at}", **{CLIQUE_LABEL: name}) for at in range(4)))
    checked, planned = answers(nodes, "--total-gpus", 16, "--group", 16)
    assert checked.returncode == 3
    assert checked.stdout.startswith(f"problem: Placeholder: label nvidia.com/gpu.clique is {name}, which names no ")
    assert "4 nodes: 1 problem, 0 warnings" in checked.stdout
    assert planned.returncode == 3
    assert "a group takes 2 pods of 8 GPUs in one domain; the largest domain has room for 1" in planned.stdout
    built = gkm_in_this_process("topology", "build", "--nodes", nodes)
    assert (built.returncode, f"nvlink {name}" in built.stdout) == (0, False)


def test_the_commands_of_the_check_end_what_it_finds(tmp_path: Path) -> None:
    items = [labeled(f"h{at}", **{CLIQUE_LABEL: f"{ZERO}.0" if at else CLIQUE}) for at in range(4)]
    nodes = written(tmp_path / "nodes.json", *items)
    done = gkm_in_this_process("topology", "check", "--nodes", nodes, "-o", "commands")
    assert done.stdout.splitlines() == ["kubectl label nodes h1 h2 h3 nvidia.com/gpu.clique-"]


LEAVES = "topology:\n  levels:\n  - {name: nvlink, keys: [nvidia.com/gpu.clique]}\n  - {name: leaf, keys: [leaf]}\n"


def rack(leaves: int) -> list[Json]:
    """Return the nodes of one NVLink domain, whose labels name so many leaves."""
    names = [f"n{at:02}" for at in range(18)]
    return [labeled(name, 4, leaf=f"l{at % leaves}", **{CLIQUE_LABEL: CLIQUE}) for at, name in enumerate(names)]


def test_nodes_that_the_check_sets_aside_get_no_run(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(LEAVES)
    run = ("--total-gpus", 72, "--group", 72, "--pod", 4)
    checked, planned = answers(written(tmp_path / "two.json", *rack(2)), *run, config=config)
    assert (checked.returncode, planned.returncode) == (3, 3)
    contradiction = f"domain {CLIQUE} lies in domains of level leaf l0 (9 nodes), l1 (9 nodes): it can be in one only"
    assert f"problem: DomainInSeveralDomains: {contradiction}" in checked.stdout
    assert f"0 of 18 nodes of its flavor can be used: 18 DomainInSeveralDomains. {contradiction}" in planned.stdout
    assert "level domain; " in planned.stdout
    checked, planned = answers(written(tmp_path / "one.json", *rack(1)), *run, config=config)
    assert (checked.returncode, planned.returncode) == (0, 0)


_LEVELS = [
    Topology(),
    Topology(missing_fabric="quarantine"),
    Topology(levels=[TopologyLevel("nvlink"), TopologyLevel("leaf", ["leaf"]), TopologyLevel("block")]),
    Topology(
        levels=[TopologyLevel("leaf", ["leaf"]), TopologyLevel("block", unique="parent"), TopologyLevel("cluster")]
    ),
]
_VALUES = st.fixed_dictionaries(
    {"fabric__domain": st.sampled_from(["a", "a", "a", ""]), "leaf": st.sampled_from(["a", "b"])},
    optional={key: st.sampled_from(["a", "a", "b", "a b"]) for key in ("block", "rack", "cluster", "region")},
)


@settings(max_examples=examples(200))
@given(st.lists(_VALUES, max_size=6), st.sampled_from(_LEVELS))
def test_check_and_planner_set_the_same_nodes_aside(labels: list[dict[str, str]], configured: Topology) -> None:
    nodes = [convert(labeled(f"n{at}", **each), Node) for at, each in enumerate(labels)]
    checked = {entry.node for entry, _ in hygiene.check(NodeList(tuple(nodes)), configured).quarantined}
    assert checked == {entry.node for entry in survey_nodes(nodes, configured).quarantined}
