"""The bench `peers` runs, at its smallest size: its containerd is a process that a node could have left."""

from pathlib import Path

import pytest
from support.benches.cited_figures import CITED
from support.benches.smallest import smallest, unusable
from support.peers import require

pytestmark = [pytest.mark.own_node, pytest.mark.timeout(600)]


def test_the_bench_of_peers_has_each_figure_that_documents_cite(tmp_path: Path) -> None:
    require.root()
    require.command("containerd", "containerd")
    require.command("ctr", "containerd")
    require.peer("olareg")
    document, _ = smallest("peers", tmp_path)
    assert document["size"] == "smallest"
    assert unusable(document["figures"], CITED["peers"]) == []
