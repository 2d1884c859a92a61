"""`gkm topology check`, `gkm topology build` and `gkm plan` give one answer about the same labels."""

from pathlib import Path
from typing import Any

import pytest
from support.cli.command import gkm_in_this_process
from support.topology.clusters import labeled, written

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
    checked, planned = answers(nodes, "--gpus", 16, "--group", 16)
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
