"""The bench `families` runs, at its smallest size: the other benches are in tests/partners/benches."""

from pathlib import Path

import pytest
from support.benches.cited_figures import CITED
from support.benches.smallest import smallest, unusable
from support.peers import require
from support.triton import installation as triton

pytestmark = [pytest.mark.heavy, pytest.mark.own_node, pytest.mark.timeout(900)]


def test_the_bench_of_families_has_each_figure_that_documents_cite(tmp_path: Path) -> None:
    require.containerd()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"):
        require.peer(command)
    for command in ("olareg", "cosign"):
        require.peer(command)
    with require.absences():
        triton.python()
    document, _ = smallest("families", tmp_path)
    assert document["size"] == "smallest"
    assert unusable(document["figures"], CITED["families"]) == []
    assert document["figures"]["storm_images"] == 1
