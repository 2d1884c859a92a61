"""NVIDIA's compute-domain-controller beside a cluster: its definitions, its account with the rights of its chart.

The node side (kubelet plugin, IMEX daemons) needs the hardware; node_side.py writes what those would.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster.cluster import Cluster
from support.cluster.control_plane import answers
from support.domains import root_templates
from support.host import ports
from support.host.processes import Process
from support.peers import build as peers
from support.peers import module_files

Json = dict[str, Any]
PARTNER, COMMAND, MODULE = "computedomain", "compute-domain-controller", "sigs.k8s.io/dra-driver-nvidia-gpu"
CRDS = Path("deployments/helm/dra-driver-nvidia-gpu/crds")
SYSTEM, NAME, DAEMON = "nvidia-dra", "compute-domain-controller", "compute-domain-daemon-service-account"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{NAME}"
UID_LABEL = "resource.nvidia.com/computeDomain"
FINALIZER = "resource.nvidia.com/computeDomain"
DRIVER = "compute-domain.nvidia.com"
_READ = ["get", "list", "watch"]
_RBAC = "rbac.authorization.k8s.io"


@dataclass
class NvidiaController:
    """The controller of one cluster; `start` starts it (again)."""

    cluster: Cluster
    directory: Path
    process: Process

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, directory: Path) -> Iterator["NvidiaController"]:
        """Install and start it; it ends with the block.

        Raises:
            Missing: no Go, or /templates cannot be made.
        """
        directory.mkdir(parents=True, exist_ok=True)
        source = module_files.source(PARTNER, MODULE)
        with ExitStack() as stack:
            stack.enter_context(root_templates.linked(source / "templates"))
            install(cluster, source)
            started = cls(cluster, directory, _start(cluster, directory))
            stack.callback(started.stop)
            yield started

    def stop(self) -> None:
        """End the process that runs now."""
        self.process.stop()

    def restart(self) -> None:
        """Start it again, after it was killed or stopped."""
        self.stop()
        self.process = _start(self.cluster, self.directory)


def install(cluster: Cluster, source: Path) -> None:
    """Apply the definitions, the device classes, the namespace of the driver and its accounts."""
    cluster.apply(source / CRDS)
    cluster.until_kinds_established()
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}, *_objects()])


def _start(cluster: Cluster, directory: Path) -> Process:
    port = ports.free()
    environment = {
        "KUBECONFIG": str(cluster.kubeconfig_for(ACCOUNT)),
        "POD_NAME": "compute-domain-controller-0",
        "IMAGE_NAME": "registry.test/dra-driver:1",
        "LOG_VERBOSITY_CD_DAEMON": "4",
        "NAMESPACE": SYSTEM,
        # The default of 5 requests a second serves a few domains; tests make many.
        "KUBE_API_QPS": "200",
        "KUBE_API_BURST": "400",
    }
    words: list[str | Path] = [peers.binary(COMMAND), "--http-endpoint", f"127.0.0.1:{port}", "-v", "4"]
    process = Process.start(NAME, words, directory / f"{NAME}.log", environment)
    process.ready(answers(f"http://127.0.0.1:{port}/metrics"), "its metrics are served")
    return process


def _objects() -> Iterator[Json]:
    yield from (_device_class(name, kind) for name, kind in (("daemon", "daemon"), ("default-channel", "channel")))
    yield from (_named("v1", "ServiceAccount", name) for name in (NAME, DAEMON))
    cluster_rules = [
        _rule("resource.nvidia.com", "computedomains", *_READ, "update"),
        _rule("resource.nvidia.com", "computedomains/status", "update"),
        _rule("resource.k8s.io", "resourceclaimtemplates", *_READ, "create", "update", "delete"),
        _rule("coordination.k8s.io", "leases", "get", "create", "update"),
        _rule("", "nodes", *_READ, "update"),
        _rule("", "pods", *_READ),
    ]
    rules = [
        _rule("apps", "daemonsets", *_READ, "create", "update", "patch", "delete"),
        _rule("resource.nvidia.com", "computedomaincliques", *_READ, "update"),
    ]
    subjects = [{"kind": "ServiceAccount", "name": NAME, "namespace": SYSTEM}]
    for kind, granted in (("ClusterRole", cluster_rules), ("Role", rules)):
        yield _named(f"{_RBAC}/v1", kind, NAME) | {"rules": granted}
        reference = {"apiGroup": _RBAC, "kind": kind, "name": NAME}
        yield _named(f"{_RBAC}/v1", f"{kind}Binding", NAME) | {"roleRef": reference, "subjects": subjects}


def _named(version: str, kind: str, name: str) -> Json:
    namespace = {} if kind.startswith("Cluster") else {"namespace": SYSTEM}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace}}


def _rule(group: str, resource: str, *verbs: str) -> Json:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _device_class(name: str, device: str) -> Json:
    chosen = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{device}'"
    selectors = [{"cel": {"expression": chosen}}]
    metadata = {"name": f"compute-domain-{name}.{DRIVER.split('.', 1)[1]}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": metadata,
        "spec": {"selectors": selectors},
    }
