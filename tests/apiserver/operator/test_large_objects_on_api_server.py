"""A tenant who fills many objects does not stop the controllers: each object is held in 4 KiB at most."""

from pathlib import Path

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES, Json
from support.cluster.cluster import Cluster
from support.host import pages
from support.kube.large_objects import FULL, HEAVY, MANY, Crowd, create, crowded, peak_mib
from support.operator.deployment import Shelf, cache, deployed, operator

OTHER = "beside-crowded"


@pytest.mark.parametrize(
    ("crowd", "limit_mib"), [(FULL, 128), pytest.param(MANY, 256, marks=HEAVY)], ids=["full", "many"]
)
def test_controllers_serve_others_beside_the_objects_of_a_tenant(
    gkm_cluster: Cluster, images: Shelf, tmp_path: Path, crowd: Crowd, limit_mib: int
) -> None:
    image = images.push("beside")[0]
    config = tmp_path / "config.yaml"
    config.write_text(images.config(), encoding="utf-8")
    with crowded(gkm_cluster, crowd, tmp_path / "cluster", deployed) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
        account = cluster.kubeconfig_for("system:serviceaccount:gkm-system:gkm-controllers")
        arguments = (f"--config={config}", "--health=127.0.0.1:0", f"--kubeconfig={account}")
        with operator(tmp_path, "controllers", *arguments) as process:
            pages.wait_until_ready(process, seconds=900)
            create(cluster, crowd.more, crowd.size)
            # The watch shows it after all others.
            connect(str(cluster.kubeconfig)).create(GKMCACHES, cache("last", image, OTHER))
            cluster.until(lambda: digest(cluster), "the cache of another tenant has a digest", 900)
            assert peak_mib(process.popen.pid) <= limit_mib


def digest(cluster: Cluster) -> str | None:
    status: Json = cluster.get("gkmcache", "last", OTHER).get("status", {})
    return status.get("resolvedDigest")
