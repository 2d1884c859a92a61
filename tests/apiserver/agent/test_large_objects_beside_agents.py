"""A tenant who fills many objects does not stop the agents: each object is held in 4 KiB at most."""

import sys

import pytest
from support.agent.machine import REPOSITORY, Machine
from support.cluster.cluster import Cluster
from support.fakes.nvml_library import H100
from support.host.processes import Process
from support.kube.large_objects import FULL, HEAVY, MANY, Crowd, create, crowded, peak_mib
from support.kube.our_kinds import install, install_agents_rights

LIMIT_MIB = 128
NODE, OTHER = "crowded-node", "beside-crowded-agent"


def prepare(cluster: Cluster) -> None:
    install(cluster)
    install_agents_rights(cluster)


@pytest.mark.parametrize("crowd", [FULL, pytest.param(MANY, marks=HEAVY)], ids=["full", "many"])
def test_an_agent_serves_others_beside_the_objects_of_a_tenant(
    cluster: Cluster, machine: Machine, crowd: Crowd
) -> None:
    prepare(cluster)
    with crowded(cluster, crowd, machine.root / "cluster", prepare) as filled:
        serves(filled, machine, crowd)


def serves(cluster: Cluster, machine: Machine, crowd: Crowd) -> None:
    """Run an agent: it reports caches of others, and stays below its limit."""
    image = f"{machine.registry.host}/{REPOSITORY}:1"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}})
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    machine.gpus(H100)
    kubeconfig = cluster.kubeconfig_for("system:serviceaccount:gkm-system:gkm-agent", node=NODE)
    places = ["--state", machine.layout.state, "--run", machine.layout.run, "--config", machine.root / "config.yaml"]
    command = [sys.executable, "-m", "gkm_agent.main", "--kubeconfig", kubeconfig, "--node", NODE, *places]
    process = Process.start("agent", [str(part) for part in command], machine.root / "log", machine.variables)
    try:
        wanted(cluster, "first", image)
        create(cluster, crowd.more, crowd.size)
        wanted(cluster, "last", image)  # the watch shows it after all others
        assert peak_mib(process.popen.pid) <= LIMIT_MIB
    finally:
        process.stop()
        cluster.objects.delete_named("node", NODE)


def wanted(cluster: Cluster, name: str, image: str) -> None:
    """Create a cache, and wait until the agent reports it."""
    kind = {"apiVersion": "gkm.io/v1alpha1", "kind": "GKMCache"}
    cluster.apply({**kind, "metadata": {"name": name, "namespace": OTHER}, "spec": {"image": image}})

    def reported() -> bool:
        if not cluster.exists("gkmcachenode", NODE, OTHER):
            return False
        return name in cluster.get("gkmcachenode", NODE, OTHER).get("status", {}).get("caches", {})

    cluster.until(reported, f"the agent reports {name}", 900)
