"""The manifests of a plan on the real API server."""

from pathlib import Path

import pytest
from support.cli.plan_files import PlanWorkspace, run
from support.cli.plan_manifests import jobs
from support.cluster.cluster import Cluster


@pytest.fixture
def workspace(tmp_path: Path) -> PlanWorkspace:
    return PlanWorkspace(tmp_path)


def test_the_api_server_accepts_the_manifests_as_they_are(cluster: Cluster, workspace: PlanWorkspace) -> None:
    if not cluster.exists("namespace", "ml"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    labels = {"team": "a", "job-name": "other", "controller-uid": "0", "gkm.io/run": "other"}
    run_file = workspace.write("asks.json", run("a" * 60 + ".v1", gpusPerPod=4, spares=1, labels=labels))
    done = workspace.run_plan("-o", "manifests", run=run_file)
    said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "--filename", "-", input=done.stdout)
    assert said.count("created (server dry run)") == len(jobs(done)) == 2
