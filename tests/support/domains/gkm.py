"""GKM with components on a cluster of a test: all of its objects, and its processes beside the API server.

Each process has the token of its own ServiceAccount, so what the manifests do not allow it cannot do.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed
from support.cluster.policies import until_policies_hold
from support.cluster.rights import until_rights_hold
from support.grove.objects import pod_clique_set
from support.host import pages, ports
from support.host.processes import Process
from support.kube import our_kinds
from support.operator.deployment import MAIN

Json = dict[str, Any]
SYSTEM = "gkm-system"
CONTROLLERS, ADMISSION = (
    f"system:serviceaccount:{SYSTEM}:gkm-controllers",
    f"system:serviceaccount:{SYSTEM}:gkm-admission",
)
WEBHOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
IN_PODS = frozenset({"DaemonSet", "Deployment", "Service", "PodDisruptionBudget"})
"""Kinds that are not applied: their processes run beside the API server."""
DOMAINS, TASK_GROUPS = "domains", "task-groups"
SECTIONS: dict[str, Json] = {
    DOMAINS: {"network": {"autoMNNVLEnabled": True}},
    TASK_GROUPS: {"taskGroups": {"enabled": True}},
}
"""What switches a component on."""
INVALID: dict[str, tuple[Json, str]] = {
    DOMAINS: (
        pod_clique_set("invalid", namespace="default", annotations={"grove.io/auto-mnnvl": "invalid"}),
        "must be",
    ),
    TASK_GROUPS: (
        {
            "apiVersion": "gkm.io/v1alpha1",
            "kind": "GroupTemplate",
            "metadata": {"name": "invalid"},
            "spec": {"template": {"kind": "x"}},
        },
        "apiVersion is missing",
    ),
}
"""An object that the admission of a component refuses, and words of its refusal."""


@dataclass
class Gkm:
    """GKM, installed; `controllers` and `admission` start a process (again)."""

    cluster: Cluster
    directory: Path
    config: Json
    components: Sequence[str] = (DOMAINS,)
    webhook_port: int = field(default_factory=ports.free)
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def installed(cls, cluster: Cluster, directory: Path, *components: str, **network: object) -> Iterator["Gkm"]:
        """Apply everything and switch the components on, without any named `domains`; processes end with the block.

        `network` is more of that section of the configuration.
        """
        directory.mkdir(parents=True, exist_ok=True)
        chosen = components or (DOMAINS,)
        config = {name: dict(section) for each in chosen for name, section in SECTIONS[each].items()}
        made = cls(cluster, directory, config, chosen)
        made.configure(**network)
        with ExitStack() as stack:
            stack.callback(made.stop)
            our_kinds.install(cluster)
            cluster.apply(made._objects())
            until_policies_hold(cluster)
            until_rights_hold(cluster)
            yield made

    def configure(self, **network: object) -> None:
        """Change the section `network`; processes read it at their start."""
        self.config.setdefault("network", {}).update(network)

    def controllers(self, identity: str = "controllers") -> Process:
        """Start a replica of the controllers and wait until it leads or stands by."""
        process = self._run(identity, "controllers", CONTROLLERS, f"--identity={identity}")
        pages.wait_until_ready(process)
        return process

    def admission(self) -> Process:
        """Start the webhooks and wait until the API server calls them."""
        certificate, key = self._certificate()
        flags = (f"--tls-cert={certificate}", f"--tls-key={key}", f"--listen=127.0.0.1:{self.webhook_port}")
        switches = [f"--{name}=on" for name in self.components]
        process = self._run("admission", "admission", ADMISSION, *switches, *flags)
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
            "--health=127.0.0.1:0",
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
            base, *components = (
                os.path.relpath(rendered() / name, overlay)
                for name in ("base", *(f"components/{each}" for each in self.components))
            )
            lists = {"resources": [base], "components": components}
            header = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
            (Path(overlay) / "kustomization.yaml").write_text(yaml.safe_dump(header | lists))
            return list(yaml.load_all(self.cluster.kubectl("kustomize", overlay), yaml.CSafeLoader))

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
        return all(self._refuses(*INVALID[each]) for each in self.components)

    def _refuses(self, invalid: Json, words: str) -> bool:
        try:
            self.cluster.objects.create(invalid, dry_run=True)
        except RequestFailed as refusal:
            return words in str(refusal)
        return False
