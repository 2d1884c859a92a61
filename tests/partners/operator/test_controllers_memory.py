"""`gkm-operator controllers` within the memory of their container, on a real kube-apiserver and hostile registries."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.host.memory import MemoryGroup, memory_of
from support.host.processes import Process
from support.operator.deployment import cache, operator_command, shelf
from support.operator.limited import ARENAS, MIB, container_limit
from support.registry.faults import Answer, Fault
from support.registry.store import OCI_INDEX

NAMESPACES = [f"hostile-{number}" for number in range(4)]
CACHES = 2
REFERRERS = b'{"manifests":[' + b"{}," * (4 * MIB // 3 - 10) + b"{}]}"


@pytest.fixture
def spaces(gkm_cluster: Cluster) -> Iterator[Cluster]:
    for name in NAMESPACES:
        gkm_cluster.apply(namespace(name))
    yield gkm_cluster
    gkm_cluster.kubectl("delete", "gkmcaches", "--all", "--all-namespaces", "--wait=false")


def test_hostile_referrers_of_eight_caches_do_not_take_more_memory_than_the_container_has(
    spaces: Cluster, tmp_path: Path
) -> None:
    api = connect(str(spaces.kubeconfig))
    with shelf() as images, MemoryGroup.of(container_limit("gkm-controllers")) as group:
        config = tmp_path / "config.yaml"
        config.write_text(images.config(), encoding="utf-8")
        for name in NAMESPACES:
            for number in range(CACHES):
                image, _ = images.push(f"{name}-{number}", flaw=None)
                api.create(GKMCACHES, cache(f"x{number}", image, name))
        good, _ = images.push("good")
        images.registry.misbehave(
            Fault("team/hostile.*/referrers/", lambda _: Answer(200, {"Content-Type": OCI_INDEX}, REFERRERS))
        )
        words = operator_command(
            "controllers",
            f"--config={config}",
            "--health=127.0.0.1:0",
            f"--kubeconfig={spaces.kubeconfig_for('system:serviceaccount:gkm-system:gkm-controllers')}",
        )
        process = Process.start("controllers", group.command(words), tmp_path / "log", ARENAS)
        try:
            for name in NAMESPACES:
                for number in range(CACHES):
                    judged = partial(_is_verified, spaces, f"x{number}", name, "False")
                    process.ready(judged, f"{name} is judged")
            api.create(GKMCACHES, cache("good", good, NAMESPACES[0]))
            process.ready(partial(_is_verified, spaces, "good", NAMESPACES[0], "True"), "the honest cache is verified")
            assert memory_of(process.pid, "VmHWM") < group.limit
        finally:
            process.stop()


def _is_verified(cluster: Cluster, name: str, space: str, wanted: str) -> bool:
    status = cluster.get("gkmcache", name, space).get("status", {})
    return any((c["type"], c["status"]) == ("Verified", wanted) for c in status.get("conditions", []))
