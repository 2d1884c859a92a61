"""A cluster with NVIDIA's controller, the real scheduler, and nodes of kwok whose channels a ResourceSlice offers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.domains import node_side
from support.domains.nvidia import SYSTEM, UID_LABEL, V041, NvidiaController, Release
from support.grove.objects import container

Json = dict[str, Any]
CLIQUE = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
CLAIM = "mnnvl-claim"
GPUS_OF_A_NODE = 8


@dataclass(frozen=True)
class DraCluster:
    """The cluster and what runs beside it. Shared: use namespaces of your own, and delete your pods."""

    cluster: Cluster
    nvidia: NvidiaController
    nodes: tuple[str, ...]

    @classmethod
    @contextmanager
    def start(cls, directory: Path, nodes: int, release: Release = V041) -> Iterator["DraCluster"]:
        """Start everything; every node has 8 GPUs, one channel, and the NVLink partition CLIQUE."""
        with ExitStack() as stack:
            cluster = stack.enter_context(Cluster.start(directory / "cluster", scheduler=True))
            nvidia = stack.enter_context(NvidiaController.running(cluster, directory / "nvidia", release))
            stack.enter_context(kwok.kwok(cluster, directory / "kwok"))
            names = tuple(f"node-{number:02}" for number in range(nodes))
            labels = (("nvidia.com/gpu.clique", CLIQUE),)
            kwok.create_nodes(cluster, [kwok.node(name, gpus=GPUS_OF_A_NODE, labels=labels) for name in names])
            node_side.publish(cluster, names, host_managed=release.host_managed)
            yield cls(cluster, nvidia, names)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """Make a namespace; at the end delete its pods and their nodes' labels, so that their channels are free."""
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.cluster.until(lambda: self.cluster.exists("serviceaccount", "default", name), "a service account")
        try:
            yield name
        finally:
            self.cluster.kubectl("delete", "pods", "--all", "--namespace", name, "--wait=false")
            self.cluster.kubectl("delete", "namespace", name, "--wait=false")
            self.cluster.until(lambda: not self.cluster.objects.every("pods", name), f"no pod in {name}")
            for node in filter(self.node_label, self.nodes):
                node_side.unprepare(self.cluster, node)

    def domain(self, name: str, namespace: str) -> Json:
        """Return a ComputeDomain, {} if there is none."""
        return self.cluster.objects.get("computedomain", name, namespace)

    def template(self, name: str, namespace: str) -> Json:
        """Return a ResourceClaimTemplate, {} if there is none."""
        return self.cluster.objects.get("resourceclaimtemplate", name, namespace)

    def daemon_set(self, uid: str) -> Json:
        """Return the DaemonSet of a domain, {} if there is none."""
        return self.cluster.objects.get("daemonset", f"computedomain-daemon-{uid}", SYSTEM)

    def daemons(self, uid: str) -> list[str]:
        """Return the nodes on which a daemon of a domain runs."""
        pods = self.cluster.objects.every("pods", SYSTEM, labelSelector=f"{UID_LABEL}={uid}")
        return [pod["spec"]["nodeName"] for pod in pods if phase(pod) == "Running"]

    def node_label(self, node: str) -> str:
        """Return the uid of the domain that has the channel of a node, "" without one."""
        return str(self.cluster.get("node", node)["metadata"]["labels"].get(UID_LABEL, ""))

    def running(self, name: str, namespace: str) -> Json:
        """Wait until a pod runs, and return it."""

        def probe() -> Json | None:
            pod = self.cluster.objects.get("pod", name, namespace)
            return pod if phase(pod) == "Running" else None

        return self.cluster.until(probe, f"pod {name} to run")

    def join(self, uid: str, namespace: str) -> list[str]:
        """Do what the node side does for running pods with claims; return their nodes, which have daemons then."""
        pods = self.cluster.objects.every("pods", namespace)
        running = [pod for pod in pods if phase(pod) == "Running" and pod["spec"].get("resourceClaims")]
        nodes = sorted({pod["spec"]["nodeName"] for pod in running})
        for node in nodes:
            if self.node_label(node) != uid:
                node_side.prepare(self.cluster, uid, node)
        self.cluster.until(lambda: sorted(self.daemons(uid)) == nodes, "a daemon on each node")
        node_side.join(self.cluster, uid, CLIQUE, dict.fromkeys(nodes, "Ready"))
        return nodes


def pod(name: str, namespace: str, template: str, *, gpus: int = GPUS_OF_A_NODE, node: str = "") -> Json:
    """Return a pod that requests GPUs and a channel, as the admission of GKM makes it; on `node` alone if given."""
    main = container("main", gpus, claims=[{"name": CLAIM}])
    claims = [{"name": CLAIM, "resourceClaimTemplateName": template}]
    spec: Json = {"containers": [main], "resourceClaims": claims}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def phase(found: Json) -> str:
    """Return the phase of a pod, "" if there is none."""
    return str(found.get("status", {}).get("phase", ""))
