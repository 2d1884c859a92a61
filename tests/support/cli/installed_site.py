"""A healthy installation of GKM on a real API server: the chart by Helm, and what its processes would write.

No pod runs. The controller-manager is stopped: it would delete pods of nodes without a kubelet. Their own code
makes the leader's Lease, the CAs of the webhook and the report of the node; what kubelets write is written by hand.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from gkm.api.meta import timestamp
from gkm.api.nodes import CompatibleGPUs, GPUGroup, NodeCacheStatus, NodeStatus
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.elector import Elector
from gkm.kube.resources import GKMCACHENODES, GKMCACHES, NODES, Json, Resource
from gkm_agent.kubernetes.sinks import apply_with_status
from gkm_agent.report.objects import node_object, ready, with_condition
from gkm_operator.admission import certificates
from gkm_operator.admission.certificates import publish
from support.chart.release import Release
from support.cli.command import gkm
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import cache, namespace
from support.cluster.rights import cluster_role_binding, until_rights_hold
from support.kube import our_kinds
from support.operator import webhook_configurations
from support.sigstore.key_signatures import SigningKey

SYSTEM, TEAM, NODE, DIGEST = "gkm-system", "ml-apps", "gpu-node-a", f"sha256:{'a' * 64}"
IMAGE = "registry.example/team/caches/llama:1"
CRDS = Path(__file__).resolve().parents[3] / "crds"
CONFIG = {
    "verification": {"policies": [{"images": ["registry.example/team/*"], "keys": [SigningKey().public_pem.decode()]}]}
}
CONTROLLERS, READER = "system:serviceaccount:gkm-system:gkm-controllers", "system:serviceaccount:ml-apps:reader"
_SERVER_FIELDS = ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation", "deletionTimestamp")


def resource(api_version: str, kind: str, plural: str = "", *, namespaced: bool = True) -> Resource[Json]:
    return Resource(api_version, kind, plural or f"{kind.lower()}s", namespaced=namespaced, type=dict)


DAEMON_SETS, DEPLOYMENTS = resource("apps/v1", "DaemonSet"), resource("apps/v1", "Deployment")
PODS, SLICES = resource("v1", "Pod"), resource("discovery.k8s.io/v1", "EndpointSlice")
LEASES = resource("coordination.k8s.io/v1", "Lease")
CSI_DRIVERS = resource("storage.k8s.io/v1", "CSIDriver", namespaced=False)
CSI_NODES = resource("storage.k8s.io/v1", "CSINode", namespaced=False)
BINDINGS = resource("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", namespaced=False)
RUNTIME_CLASSES = resource("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False)
PRIORITY_CLASSES = resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)
CACHES = resource("gkm.io/v1alpha1", "GKMCache")
REPORTS = resource("gkm.io/v1alpha1", "GKMCacheNode")


@dataclass(frozen=True)
class InstalledSite:
    """The cluster, the administrator's client, and that of the controllers: only they may write statuses of caches."""

    cluster: Cluster
    api: Api
    controllers: Api
    reader: Path

    def doctor(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command with a token that is bound to the role of the chart for readers.

        Without a grace period: all objects are new.
        """
        return gkm("doctor", "--kubeconfig", self.reader, "--grace", "0", *arguments)

    def findings(self, *arguments: str) -> tuple[int, list[tuple[str, str, str]]]:
        """Return the exit code, and severity, check and detail of every finding that is not ok."""
        done = self.doctor("-o", "json", *arguments)
        found = json.loads(done.stdout)
        bad = sorted(
            (one["severity"], one["check"], one["why"])
            for one in found
            if one["ok"] is False or one["severity"] == "warning"
        )
        return done.returncode, bad

    @contextmanager
    def patched(
        self, where: Resource[Any], name: str, space: str | None, patch: Json, *, status: bool = False
    ) -> Iterator[None]:
        """Change an object by a merge patch, and change it back."""
        api, subresource = (self.controllers if where is CACHES else self.api), "status" if status else ""
        before = api.get(where, name, space) if api is self.api else self.api.get(where, name, space)
        api.merge(where, name, patch, space, subresource=subresource)
        try:
            yield
        finally:
            api.merge(where, name, _inverse(patch, before), space, subresource=subresource)

    @contextmanager
    def without(self, where: Resource[Any], name: str, space: str | None = None) -> Iterator[None]:
        """Delete an object, and create it again."""
        before = self.api.get(where, name, space)
        self.remove(where, name, space)
        try:
            yield
        finally:
            self.create(where, before)

    @contextmanager
    def replaced(self, where: Resource[Any], made: Json) -> Iterator[None]:
        """Put another object in the place of one whose fields cannot change."""
        name = made["metadata"]["name"]
        with self.without(where, name):
            self.api.create(where, made)
            try:
                yield
            finally:
                self.remove(where, name, None)

    @contextmanager
    def created(self, where: Resource[Any], made: Json) -> Iterator[None]:
        """Create an object, and delete it."""
        self.create(where, made)
        try:
            yield
        finally:
            self.remove(where, made["metadata"]["name"], made["metadata"].get("namespace"))

    def create(self, where: Resource[Any], made: Json) -> None:
        """Create an object as it was, with its status."""
        metadata = {key: value for key, value in made["metadata"].items() if key not in _SERVER_FIELDS}
        self.api.create(where, made | {"metadata": metadata})
        if made.get("status"):
            writer = self.controllers if where is CACHES else self.api
            space = metadata.get("namespace")
            writer.merge(where, metadata["name"], {"status": made["status"]}, space, subresource="status")

    def remove(self, where: Resource[Any], name: str, space: str | None) -> None:
        kind = f"{where.plural}.{where.api_version.rpartition('/')[0]}".rstrip(".")
        self.cluster.objects.ask_to_delete(kind, name, space, gracePeriodSeconds=0)
        self.cluster.until(lambda: not self.cluster.exists(kind, name, space), f"{kind} {name} to be gone")


@contextmanager
def installed(directory: Path) -> Iterator[InstalledSite]:
    """Install GKM with one node, one cache on it, and a user who may read."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(directory))
        our_kinds.install(cluster)
        # Before the webhook, which no process answers.
        cluster.apply([namespace(TEAM), cache("llama", TEAM, IMAGE)])
        cluster.until(lambda: cluster.exists("serviceaccount", "default", TEAM), "the service account")
        stack.enter_context(cluster.control_plane.stalled("kube-controller-manager"))
        Release(cluster).install({"config": CONFIG})
        account = {"kind": "ServiceAccount", "name": "reader", "namespace": TEAM}
        cluster.apply({"apiVersion": "v1", "kind": account["kind"], "metadata": {"name": "reader", "namespace": TEAM}})
        cluster.apply(cluster_role_binding("reader", "gkm-reader", account))
        until_rights_hold(cluster)
        api = connect(str(cluster.kubeconfig))
        made = InstalledSite(
            cluster, api, connect(str(cluster.kubeconfig_for(CONTROLLERS))), cluster.kubeconfig_for(READER)
        )
        _node(made)
        _pods(made)
        _caches(made)
        now = datetime.now(UTC)
        publish(api, SYSTEM, [], [certificates.make(["x"], now).authority], now)
        webhook_configurations.copy(api)
        leader = Elector(made.controllers, SYSTEM, "gkm-controllers", "gkm-controllers-0")
        assert leader.acquire(Event())
        stack.callback(leader.release)
        yield made


def node(name: str, **labels: str) -> Json:
    """A Node as a kubelet registers it and a device plugin completes it."""
    wanted = {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **labels}
    status = {
        "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "conditions": [condition("Ready", "True", "KubeletReady")],
        "nodeInfo": dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"), "x"
        )
        | {"kubeletVersion": "v1.34.1", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": wanted}, "status": status}


def lease(name: str, renewed: datetime) -> Json:
    """The Lease of a node, as its kubelet renews it."""
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"{renewed:%Y-%m-%dT%H:%M:%S.%fZ}"}
    metadata = {"name": name, "namespace": "kube-node-lease"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def report(name: str, caches: dict[str, NodeCacheStatus]) -> Any:  # noqa: ANN401 -- a struct of ours
    """The report of a node, as its agent makes it."""
    gpus = GPUGroup(
        [*range(8)], gpu_type="NVIDIA H100 80GB HBM3", driver_version="570.86.15", backend="cuda", arch="sm_90"
    )
    status = NodeStatus(gpus=[gpus], caches=caches)
    return node_object(name, TEAM, with_condition(status, "Ready", ready(status), [], timestamp()), timestamp())


def on_node(state: str = "Ready", **fields: Any) -> NodeCacheStatus:  # noqa: ANN401 -- fields of the struct
    """The state of the cache on a node."""
    fitting = [] if state == "Incompatible" else [CompatibleGPUs([*range(8)])]
    return NodeCacheStatus(
        state=state, digest=DIGEST, compatible_gpus=fitting, size_bytes=1000, last_updated=timestamp(), **fields
    )


def _node(site: InstalledSite) -> None:
    site.create(NODES, node(NODE, **{"nvidia.com/gpu.present": "true"}))
    site.api.create(LEASES, lease(NODE, datetime.now(UTC)))
    drivers = [{"name": "csi.gkm.io", "nodeID": NODE, "topologyKeys": None}]
    csi_node = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE}}
    site.api.create(CSI_NODES, csi_node | {"spec": {"drivers": drivers}})
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    site.api.create(RUNTIME_CLASSES, runtime)


def _pods(site: InstalledSite) -> None:
    for where, name in (
        (DAEMON_SETS, "gkm-agent"),
        (DAEMON_SETS, "gkm-csi"),
        (DEPLOYMENTS, "gkm-controllers"),
        (DEPLOYMENTS, "gkm-admission"),
    ):
        template = site.api.get(where, name, SYSTEM)["spec"]["template"]
        metadata = template["metadata"] | {"name": f"{name}-0", "namespace": SYSTEM}
        status = {"phase": "Running", "conditions": [condition("Ready", "True", "")]}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
        site.create(PODS, made | {"spec": template["spec"] | {"nodeName": NODE}})
        if where is DAEMON_SETS:
            counts = dict.fromkeys(
                ("currentNumberScheduled", "desiredNumberScheduled", "numberReady", "updatedNumberScheduled"), 1
            )
            patch = {"status": counts | {"numberMisscheduled": 0}}
            site.api.merge(where, name, patch, SYSTEM, subresource="status")
    metadata = {
        "name": "gkm-admission-0",
        "namespace": SYSTEM,
        "labels": {"kubernetes.io/service-name": "gkm-admission"},
    }
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}}
    made = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4"}
    site.api.create(SLICES, made | {"endpoints": [endpoint], "ports": [{"name": "https", "port": 9443}]})


def _caches(site: InstalledSite) -> None:
    status = {
        "image": IMAGE,
        "resolvedDigest": DIGEST,
        "ready": "1/1",
        "readyNodes": 1,
        "totalNodes": 1,
        "conditions": [condition("Verified", "True", "CosignSuccess"), condition("Ready", "True", "AllNodesReady")],
    }
    site.controllers.merge(GKMCACHES, "llama", {"status": status}, TEAM, subresource="status")
    apply_with_status(site.api, GKMCACHENODES, report(NODE, {"llama": on_node()}))


def condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    moment = timestamp(datetime.now(UTC) - timedelta(hours=1))
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def _inverse(patch: Any, before: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return the merge patch that undoes a merge patch."""
    if not isinstance(patch, dict):
        return before
    known = before if isinstance(before, dict) else {}
    return {key: _inverse(value, known.get(key)) for key, value in patch.items()}


def config_text(config: Json) -> Json:
    """Return the patch of gkm-config that writes this configuration."""
    return {"data": {"config.yaml": yaml.safe_dump(config)}}
