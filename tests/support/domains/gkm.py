"""GKM with the component `domains` on a cluster of a test: all of its objects, and its processes beside the API server.

Each process has the token of its own ServiceAccount, so what the manifests do not allow it cannot do.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.cluster.cluster import Cluster, KubectlFailed
from support.grove.objects import pod_clique_set
from support.host import ports
from support.host.processes import Process
from support.kube import our_kinds
from support.operator.deployment import MAIN, ROOT

Json = dict[str, Any]
SYSTEM = "gkm-system"
CONTROLLERS, ADMISSION = (
    f"system:serviceaccount:{SYSTEM}:gkm-controllers",
    f"system:serviceaccount:{SYSTEM}:gkm-admission",
)
WEBHOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
IN_PODS = frozenset({"DaemonSet", "Deployment", "Service", "PodDisruptionBudget"})
"""Kinds that are not applied: their processes run beside the API server."""


@dataclass
class Gkm:
    """GKM, installed; `controllers` and `admission` start a process (again)."""

    cluster: Cluster
    directory: Path
    config: Json
    webhook_port: int = field(default_factory=ports.free)
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def installed(cls, cluster: Cluster, directory: Path, **network: object) -> Iterator["Gkm"]:
        """Apply everything; `network` is that section of the configuration. Processes end with the block."""
        directory.mkdir(parents=True, exist_ok=True)
        made = cls(cluster, directory, {"network": {"autoMNNVLEnabled": True, **network}})
        with ExitStack() as stack:
            stack.callback(made.stop)
            our_kinds.install(cluster)
            cluster.apply(made._objects())
            yield made

    def configure(self, **network: object) -> None:
        """Change the section `network`; processes read it at their start."""
        self.config["network"] |= network

    def controllers(self, identity: str = "controllers") -> Process:
        """Start a replica of the controllers and wait until it leads or stands by."""
        process = self._run(identity, "controllers", CONTROLLERS, f"--identity={identity}")
        process.ready(lambda: '"event": "synced"' in process.log.read_text(), "it is synced")
        return process

    def admission(self) -> Process:
        """Start the webhooks and wait until the API server calls them."""
        certificate, key = self._certificate()
        flags = (f"--tls-cert={certificate}", f"--tls-key={key}", f"--listen=127.0.0.1:{self.webhook_port}")
        process = self._run("admission", "admission", ADMISSION, "--domains=on", *flags)
        process.ready(self._is_asked, "the API server calls it")
        return process

    def stop(self) -> None:
        """End every process, the last one first."""
        for process in reversed(list(self.processes.values())):
            process.stop()

    def _run(self, name: str, command: str, account: str, *flags: str) -> Process:
        config = self.directory / "config.yaml"
        config.write_text(yaml.safe_dump(self.config))
        words = (
            f"--config={config}",
            f"--kubeconfig={self.cluster.kubeconfig_for(account)}",
            f"--health=127.0.0.1:{ports.free()}",
            *flags,
        )
        log = self.directory / f"{name}-{len(list(self.directory.glob('*.log')))}.log"
        process = Process.start(f"gkm-{name}", [sys.executable, *MAIN, command, *words], log)
        self.processes[name] = process
        return process

    def _objects(self) -> list[Json]:
        """Return deploy/base with the component, the namespace first; webhooks are called on this machine."""
        found = [document for document in self._rendered() if document["kind"] not in IN_PODS]
        return sorted(map(self._local, found), key=lambda document: str(document["kind"]) != "Namespace")

    def _rendered(self) -> list[Json]:
        # Kustomize takes no absolute paths.
        with tempfile.TemporaryDirectory(dir=self.directory) as overlay:
            relative = {
                name: os.path.relpath(ROOT / "deploy" / name, overlay) for name in ("base", "components/domains")
            }
            lists = {"resources": [relative["base"]], "components": [relative["components/domains"]]}
            header = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
            (Path(overlay) / "kustomization.yaml").write_text(yaml.safe_dump(header | lists))
            return list(yaml.safe_load_all(self.cluster.kubectl("kustomize", overlay)))

    def _local(self, document: Json) -> Json:
        if document["kind"] not in WEBHOOKS:
            return document
        bundle = self.cluster.control_plane.authority.base64

        def at(webhook: Json) -> Json:
            path = webhook["clientConfig"]["service"]["path"]
            url = f"https://127.0.0.1:{self.webhook_port}{path}"
            return webhook | {"clientConfig": {"url": url, "caBundle": bundle}}

        return document | {"webhooks": [at(webhook) for webhook in document["webhooks"]]}

    def _certificate(self) -> tuple[Path, Path]:
        return self.cluster.control_plane.authority.server(["127.0.0.1"]).write(self.directory / "tls", "tls")

    def _is_asked(self) -> bool:
        invalid = pod_clique_set("invalid", namespace="default", annotations={"grove.io/auto-mnnvl": "invalid"})
        try:
            self.cluster.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(invalid))
        except KubectlFailed as refusal:
            return "must be" in refusal.stderr
        return False
