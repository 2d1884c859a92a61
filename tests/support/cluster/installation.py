"""GKM on a testbed cluster: crds/, deploy/base, pod-caches, and our processes beside kubelet instead of in pods.

Each process has the token of its own ServiceAccount, so what deploy/base does not allow it cannot do.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.chart import helm
from support.chart.deploy_files import rendered
from support.cluster import gkm_objects
from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed
from support.csi.client import CSIClient
from support.fakes import nvml_library
from support.host import ports
from support.host.processes import Process

ROOT = Path(__file__).parents[3]
SYSTEM = "gkm-system"
WEBHOOKS = "gkm-caches"
CONFIGURATIONS = (f"--webhook-configuration={WEBHOOKS}", "--webhook-configuration=mutating/gkm-pod-caches")
MANIFESTS = ("base", "components/pod-caches")
IN_PODS = frozenset({"DaemonSet", "Deployment", "Service", "PodDisruptionBudget", "Kustomization", "Component"})
"""Kinds of deploy/base that are not applied: their processes run beside kubelet."""
NOT_ALLOWED = gkm_objects.cache("not-allowed", "default", "127.0.0.1:9/not/allowed:1")
"""What our webhook, and nobody else, refuses: an address of this machine that is not configured."""


@dataclass
class Installation:
    """GKM, installed; `run` starts a process (again), `processes` has those that were started."""

    cluster: Cluster
    directory: Path
    machine: Mapping[str, str]
    """Environment of a process that sees the GPUs of this node."""
    capture_mode: str = "request"
    values: Mapping[str, Any] | None = None
    """Values of the chart; None for the manifests of a release."""
    webhook_port: int = field(default_factory=ports.free)
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def start(
        cls,
        cluster: Cluster,
        directory: Path,
        *,
        keys: Sequence[str],
        registries: Sequence[str],
        gpus: Sequence[nvml_library.Gpu] = (nvml_library.H100,),
    ) -> Iterator["Installation"]:
        """Install and start all of it; `keys` are PEM texts, `registries` are host:port that speak plain http."""
        directory.mkdir(parents=True, exist_ok=True)
        library = nvml_library.build()
        made = cls(cluster, directory, nvml_library.environment(directory, library=library, gpus=gpus))
        hosts = {host: {"plainHTTP": True} for host in registries}
        config = {
            "verification": {"policies": [{"keys": list(keys)}]},
            "registries": {"hosts": hosts},
            "store": {"minFreePercent": 0},
            "capture": {"minFreePercent": 0},
            "fabric": {"cacheLabels": True},
        }
        made.config.write_text(yaml.safe_dump(config))
        with ExitStack() as stack:
            stack.callback(made.stop)
            made.install()
            for name in COMMANDS:
                made.run(name)
            yield made

    @property
    def config(self) -> Path:
        return self.directory / "config.yaml"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def run_directory(self) -> Path:
        return self.directory / "run"

    @property
    def csi_socket(self) -> Path:
        return self.cluster.kubelet_root / "plugins" / "csi.gkm.io" / "csi.sock"

    def install(self) -> None:
        """Apply CRDs and manifests; the webhook is called on this machine."""
        self.cluster.apply(ROOT / "crds")
        found = [document for document in self._manifests() if document["kind"] not in IN_PODS]
        for document in found:
            for webhook in document.get("webhooks", ()):
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self.webhook_port}{path}"}
        self.cluster.apply(sorted(found, key=lambda document: document["kind"] != "Namespace"))

    def _manifests(self) -> list[dict[str, Any]]:
        if self.values is not None:
            return [document.value for document in helm.render(self.values)]
        files = (path for directory in MANIFESTS for path in sorted((rendered() / directory).glob("*.yaml")))
        return [document for path in files for document in _documents(path)]

    def run(self, name: str) -> Process:
        """Start (again) one of COMMANDS and wait until it works."""
        module, *words = COMMANDS[name](self)
        process = Process.start(
            f"gkm-{name}", [sys.executable, "-m", module, *words], self.directory / f"{name}.log", self.machine
        )
        self.processes[name] = process
        if name == "admission":
            process.ready(self._webhook_is_trusted, "its certificate is in the configuration")
            process.ready(self.admission_judges, "the API server asks it")
        if name == "csi":
            client = CSIClient(self.csi_socket)
            process.ready(client.answers, "its socket answers")
            client.close()
            process.ready(self._driver_is_registered, "kubelet knows the driver")
        return process

    def stop(self) -> None:
        """End everything, the last one first."""
        for process in reversed(list(self.processes.values())):
            process.stop()

    def account(self, name: str, *, node: str | None = None) -> Path:
        """Return a kubeconfig with a token of one of our ServiceAccounts."""
        return self.cluster.kubeconfig_for(f"system:serviceaccount:{SYSTEM}:{name}", node=node)

    def admission_judges(self) -> bool:
        """Tell whether the API server asks our webhook, and trusts it."""
        try:
            self.cluster.objects.create(NOT_ALLOWED, dry_run=True)
        except RequestFailed as refusal:
            return "is an address of this machine" in str(refusal)
        return False

    def _webhook_is_trusted(self) -> bool:
        configuration = self.cluster.get("validatingwebhookconfiguration", WEBHOOKS)
        return all(webhook["clientConfig"].get("caBundle") for webhook in configuration["webhooks"])

    def _driver_is_registered(self) -> bool:
        drivers = self.cluster.get("csinode", self.cluster.node_name)["spec"].get("drivers") or []
        return any(driver["name"] == "csi.gkm.io" for driver in drivers)


def _controllers(gkm: Installation) -> list[str | Path]:
    listen = "--health=127.0.0.1:0"
    account = gkm.account("gkm-controllers")
    words: list[str | Path] = ["--config", gkm.config, "--kubeconfig", account, listen]
    return ["gkm_operator.main", "controllers", *words, *CONFIGURATIONS]


def _admission(gkm: Installation) -> list[str | Path]:
    account = gkm.account("gkm-admission")
    health = "--health=127.0.0.1:0"
    tls: list[str | Path] = [
        "--self-signed",
        gkm.directory / "tls",
        "--tls-names=127.0.0.1",
        *CONFIGURATIONS,
        "--pod-caches=on",
    ]
    listen = f"--listen=127.0.0.1:{gkm.webhook_port}"
    return ["gkm_operator.main", "admission", "--config", gkm.config, "--kubeconfig", account, listen, health, *tls]


def _agent(gkm: Installation) -> list[str | Path]:
    node = gkm.cluster.node_name
    account = gkm.account("gkm-agent", node=node)
    where: list[str | Path] = ["--state", gkm.state, "--run", gkm.run_directory, "--node", node]
    return ["gkm_agent.main", "--config", gkm.config, "--kubeconfig", account, *where]


def _csi(gkm: Installation) -> list[str | Path]:
    where: list[str | Path] = ["--state", gkm.state, "--run", gkm.run_directory, "--node", gkm.cluster.node_name]
    captures = [f"--capture-mode={gkm.capture_mode}", "--capture-min-free-percent=0"]
    return ["gkm_csi.main", "--kubelet", gkm.cluster.kubelet_root, *captures, *where]


COMMANDS: Mapping[str, Callable[[Installation], list[str | Path]]] = {
    "controllers": _controllers,
    "admission": _admission,
    "agent": _agent,
    "csi": _csi,
}


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]
