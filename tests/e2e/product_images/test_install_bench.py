"""The bench `install` runs, at its smallest size: the other benches are in tests/partners/benches."""

from pathlib import Path

import pytest
from support.benches.cited_figures import CITED
from support.benches.smallest import smallest, unusable
from support.peers import require
from support.product_images import build

pytestmark = [pytest.mark.heavy, pytest.mark.images, pytest.mark.own_node, pytest.mark.timeout(900)]


def test_the_bench_of_installations_has_each_figure_that_documents_cite(tmp_path: Path) -> None:
    require.containerd()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"):
        require.peer(command)
    for command in ("olareg", "helm", "cosign"):
        require.peer(command)
    with require.absences():
        build.archives()
    document, _ = smallest("install", tmp_path)
    assert document["size"] == "smallest"
    assert unusable(document["figures"], CITED["install"]) == []
    assert document["figures"]["doctor_found"] == document["figures"]["doctor_seeded"]
