"""The real agent against a real API server, with the rights that deploy/ gives it and a token bound to its Node."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from gkm.kube.client import connect
from gkm.kube.resources import GKMCACHES
from support.agent.machine import REPOSITORY, Machine
from support.cluster.cluster import Cluster
from support.fakes.nvml_library import A100, H100
from support.kube.our_kinds import install, install_agents_rights, status_writer

NAMESPACE, NODE = "agent-test", "agent-node"
LABELS = {"kubernetes.io/hostname": "host-of-agent", "pool": "gpu"}


@pytest.fixture
def place(cluster: Cluster) -> Iterator[Cluster]:
    install(cluster)
    install_agents_rights(cluster)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name in (NODE, "other-node"):
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": LABELS}})
    yield cluster
    for kind in ("gkmcaches", "gkmcachenodes"):
        cluster.objects.delete_every(kind, NAMESPACE)
    for name in (NODE, "other-node"):
        cluster.objects.delete_named("node", name)


def declare(cluster: Cluster, machine: Machine, **spec: Any) -> None:  # noqa: ANN401 -- JSON
    image = f"{machine.registry.host}/{REPOSITORY}:1"
    cluster.apply(
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GKMCache",
            "metadata": {"name": "vector-add", "namespace": NAMESPACE},
            "spec": {"image": image, **spec},
        }
    )


def verify(cluster: Cluster, machine: Machine) -> None:
    """Say what the controller says of a signed image."""
    condition = {
        "type": "Verified",
        "status": "True",
        "reason": "CosignSuccess",
        "message": "signed",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {
        "image": f"{machine.registry.host}/{REPOSITORY}:1",
        "resolvedDigest": machine.digest,
        "conditions": [condition],
    }
    writer = connect(str(status_writer(cluster)))
    writer.merge(GKMCACHES, "vector-add", {"status": status}, NAMESPACE, subresource="status")


@pytest.fixture
def agent(place: Cluster, machine: Machine) -> Iterator[subprocess.Popen[bytes]]:
    machine.gpus(H100, A100)
    kubeconfig = place.kubeconfig_for("system:serviceaccount:gkm-system:gkm-agent", node=NODE)
    places = ["--state", machine.layout.state, "--run", machine.layout.run, "--config", machine.root / "config.yaml"]
    command = [sys.executable, "-m", "gkm_agent.main", "--kubeconfig", kubeconfig, "--node", NODE, *places]
    with subprocess.Popen([str(part) for part in command], env=os.environ | machine.variables) as process:
        try:
            yield process
        finally:
            process.kill()


def cache_on_node(cluster: Cluster) -> dict[str, Any]:
    status: dict[str, Any] = cluster.objects.get("gkmcachenode", NODE, NAMESPACE).get("status", {})
    found: dict[str, Any] = status.get("caches", {}).get("vector-add", {})
    return found


@pytest.mark.usefixtures("agent")
def test_a_cache_is_ready_once_the_controller_and_the_agent_have_verified_it(place: Cluster, machine: Machine) -> None:
    declare(place, machine, nodeSelector={"pool": "gpu"})
    place.until(lambda: cache_on_node(place).get("state") == "Pending", "the cache waits for the controller")
    waiting = cache_on_node(place)
    assert "waiting for the controller" in waiting["message"]
    # As the design's example has them, and the API server stores them.
    assert (waiting["compatibleGPUs"], waiting["incompatibleGPUs"]) == ([], [])

    verify(place, machine)
    place.until(lambda: cache_on_node(place).get("state") == "Ready", "the cache is Ready")

    found = place.get("gkmcachenode", NODE, NAMESPACE)
    assert found["spec"] == {"nodeName": NODE}
    assert found["metadata"]["labels"] == {"gkm.node": NODE, "kubernetes.io/hostname": "host-of-agent"}
    assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Node"]
    cache = found["status"]["caches"]["vector-add"]
    assert (cache["digest"], cache["compatibleGPUs"]) == (machine.digest, [{"ids": [0]}])
    assert cache["incompatibleGPUs"][0]["reason"] == "ArchitectureMismatch"
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "AllCachesReady")
    assert found["status"]["observedGeneration"] == condition["observedGeneration"] == found["metadata"]["generation"]
    assert "1 Ready" in place.kubectl("get", "gkmcn", "--namespace", NAMESPACE)


@pytest.mark.usefixtures("agent")
def test_a_deleted_cache_takes_its_node_object_with_it(place: Cluster, machine: Machine) -> None:
    declare(place, machine)
    verify(place, machine)
    place.until(lambda: cache_on_node(place).get("state") == "Ready", "the cache is Ready")

    place.objects.delete_patiently("gkmcache", "vector-add", NAMESPACE)

    place.until(lambda: not place.exists("gkmcachenode", NODE, NAMESPACE), "the node object is gone")
    place.until(lambda: not list(machine.layout.store.iterdir()), "the entry is gone")


def test_it_ends_on_stop(place: Cluster, machine: Machine, agent: subprocess.Popen[bytes]) -> None:
    declare(place, machine)
    place.until(lambda: cache_on_node(place), "the agent works")

    agent.send_signal(signal.SIGTERM)

    assert agent.wait(30) == 0


@pytest.mark.usefixtures("agent")
def test_nothing_is_written_while_nothing_changes(place: Cluster, machine: Machine) -> None:
    declare(place, machine)
    verify(place, machine)
    place.until(lambda: cache_on_node(place).get("state") == "Ready", "the cache is Ready")
    before = place.get("gkmcachenode", NODE, NAMESPACE)["metadata"]["resourceVersion"]

    place.objects.label("gkmcache", "vector-add", {"touched": "yes"}, NAMESPACE)
    declare(place, machine, nodeSelector={"pool": "gpu"})
    place.objects.label("node", NODE, {"zone": "b"})
    later = {"apiVersion": "gkm.io/v1alpha1", "kind": "ClusterGKMCache", "metadata": {"name": "agent-test-later"}}
    place.apply(later | {"spec": {"image": f"{machine.registry.host}/{REPOSITORY}:1"}})
    place.until(lambda: place.exists("clustergkmcachenode", NODE), "the agent has seen all of it")
    place.objects.delete_patiently("clustergkmcache", "agent-test-later")

    assert place.get("gkmcachenode", NODE, NAMESPACE)["metadata"]["resourceVersion"] == before
