"""The bench `followed` runs, at its smallest size, with Kueue: the other benches are in tests/partners/benches."""

from pathlib import Path

import pytest
from support.benches.cited_figures import CITED
from support.benches.smallest import smallest, unusable
from support.peers import require

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def test_the_bench_of_followed_plans_has_each_figure_that_documents_cite(tmp_path: Path) -> None:
    require.root()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kueue"):
        require.peer(command)
    document, _ = smallest("followed", tmp_path)
    assert document["size"] == "smallest"
    assert unusable(document["figures"], CITED["followed"]) == []
    assert document["figures"]["followed_percent"] == 100
