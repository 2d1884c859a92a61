"""The node side of NVIDIA's driver, which needs the hardware: the objects that its plugin and daemons write, as facts.

The kubelet plugin publishes the devices channel-0 and daemon-0 of its node and labels the node when a pod with a
channel comes; the daemon of the node then enters itself in the ComputeDomainClique of its NVLink partition.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from support.cluster.cluster import Cluster
from support.domains.nvidia import SYSTEM, UID_LABEL
from support.grove.imex import resource_slice

Json = dict[str, Any]
CLIQUE_LABEL = "resource.nvidia.com/computeDomain.cliqueID"


def publish(cluster: Cluster, nodes: Iterable[str], *, host_managed: bool = False) -> None:
    """Publish the devices of nodes: no daemon where the hosts run IMEX."""
    types = ("channel",) if host_managed else ("channel", "daemon")
    cluster.apply([resource_slice(node, *types) for node in nodes])


def prepare(cluster: Cluster, domain_uid: str, node: str) -> None:
    """Label a node as the plugin does when a pod with a channel starts there; its daemon starts then."""
    cluster.kubectl("label", "node", node, f"{UID_LABEL}={domain_uid}")


def unprepare(cluster: Cluster, node: str) -> None:
    """Remove the label as the plugin does when the last pod with a channel is gone."""
    cluster.kubectl("label", "node", node, f"{UID_LABEL}-")


def join(cluster: Cluster, domain_uid: str, clique: str, nodes: Mapping[str, str]) -> None:
    """Enter the daemons of nodes in a clique; `nodes` maps their names to Ready or NotReady.

    NVIDIA's controller removes the entries of nodes that have no daemon pod.
    """
    daemons = [
        {"nodeName": name, "ipAddress": f"192.0.2.{index + 1}", "cliqueID": clique, "index": index, "status": status}
        for index, (name, status) in enumerate(sorted(nodes.items()))
    ]
    labels = {UID_LABEL: domain_uid, CLIQUE_LABEL: clique}
    cluster.apply(
        {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainClique",
            "metadata": {"name": f"{domain_uid}.{clique}", "namespace": SYSTEM, "labels": labels},
            "daemons": daemons,
        }
    )
