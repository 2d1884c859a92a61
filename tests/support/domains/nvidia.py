"""NVIDIA's compute-domain-controller beside a cluster: its definitions, its account with the rights of its chart.

The node side (kubelet plugin, IMEX daemons) needs the hardware; node_side.py writes what those would. Release 0.5.0 has
two modes: the driver runs the IMEX daemons, or the hosts do.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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
MODULE = "sigs.k8s.io/dra-driver-nvidia-gpu"
CRDS = Path("deployments/helm/dra-driver-nvidia-gpu/crds")
SYSTEM, NAME, DAEMON = "nvidia-dra", "compute-domain-controller", "compute-domain-daemon-service-account"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:{NAME}"
UID_LABEL = "resource.nvidia.com/computeDomain"
FINALIZER = "resource.nvidia.com/computeDomain"
DRIVER = "compute-domain.nvidia.com"
_READ = ["get", "list", "watch"]
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Release:
    """A release of the driver, in a mode of IMEX."""

    partner: str
    command: str
    host_managed: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what NVIDIA's chart adds to the command line for the mode."""
        return ("--imex-mode=hostManaged", "--feature-gates=HostManagedIMEXDaemon=true") if self.host_managed else ()

    @property
    def templates(self) -> Path:
        """Return the directory that this release expects at /templates."""
        return module_files.source(self.partner, MODULE) / "templates"


V041 = Release("computedomain", "compute-domain-controller")
V050 = Release("computedomain050", "compute-domain-controller-0.5.0")
V050_ON_HOSTS = replace(V050, host_managed=True)
COMMAND = V041.command


@dataclass
class NvidiaController:
    """The controller of one cluster; `start` starts it (again)."""

    cluster: Cluster
    directory: Path
    release: Release
    process: Process

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, directory: Path, release: Release = V041) -> Iterator["NvidiaController"]:
        """Install and start it; it ends with the block.

        Raises:
            Missing: no Go, or /templates cannot be made.
        """
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(root_templates.linked(V041.templates))
            install(cluster, release)
            started = cls(cluster, directory, release, _start(cluster, directory, release))
            stack.callback(started.stop)
            yield started

    def stop(self) -> None:
        """End the process that runs now."""
        self.process.stop()

    def restart(self) -> None:
        """Start it again, after it was killed or stopped."""
        self.stop()
        self.process = _start(self.cluster, self.directory, self.release)


def install(cluster: Cluster, release: Release = V041) -> None:
    """Apply the definitions, the device classes, the namespace of the driver and its accounts."""
    cluster.apply(module_files.source(release.partner, MODULE) / CRDS)
    cluster.until_kinds_established()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    cluster.apply([namespace, *_objects(host_managed=release.host_managed)])


def _start(cluster: Cluster, directory: Path, release: Release) -> Process:
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
    command = peers.binary(release.command)
    words: list[str | Path] = [command, "--http-endpoint", f"127.0.0.1:{port}", "-v", "4", *release.flags]
    if release.partner != V041.partner:
        words = [*_with_templates(release.templates), *words]
    process = Process.start(NAME, words, directory / f"{NAME}.log", environment)
    process.ready(answers(f"http://127.0.0.1:{port}/metrics"), "its metrics are served")
    return process


def _with_templates(templates: Path) -> list[str | Path]:
    """Return a command that runs another one with its own templates: the path is fixed, and 0.4.1 shares the link."""
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, templates, V041.templates]


def _objects(*, host_managed: bool) -> Iterator[Json]:
    classes = {"daemon": "daemon", "default-channel": "channel"}
    if host_managed:
        del classes["daemon"]
    yield from (_device_class(name, kind) for name, kind in classes.items())
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
