"""The admission process that a real API server calls, and what a test needs of both."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from gkm.kube.api import Api
from support.cluster.cluster import Cluster
from support.host import listening, pages, ports
from support.host.processes import Process
from support.operator.ca_copies import copied
from support.operator.deployment import operator

ACCOUNT = "system:serviceaccount:gkm-system:gkm-admission"


@dataclass
class AdmissionSite:
    """The cluster, its administrator's API, and the process of the webhook."""

    cluster: Cluster
    api: Api
    stack: ExitStack
    directory: Path
    port: int = field(default_factory=ports.free)
    process: Process = field(init=False)

    def serve(
        self,
        configuration: dict[str, Any],
        feature: str,
        switch: str,
        kinds: Sequence[str] = ("mutating", "validating"),
    ) -> None:
        """Start the process with its own account (again), and wait until it serves the webhooks of a feature."""
        configurations = [f"{kind}/{feature}" for kind in kinds]
        config = self.directory / "config.yaml"
        config.write_text(yaml.safe_dump(configuration))
        arguments = (
            "admission",
            f"--config={config}",
            f"--listen=127.0.0.1:{self.port}",
            "--health=127.0.0.1:0",
            f"--self-signed={self.directory / 'tls'}",
            "--tls-names=127.0.0.1",
            *(f"--webhook-configuration={each}" for each in configurations),
            switch,
            f"--kubeconfig={self.cluster.kubeconfig_for(ACCOUNT)}",
        )
        self.stack.enter_context(copied(self.cluster, configurations))
        self.process = self.stack.enter_context(operator(self.directory, *arguments))
        health = listening.address(self.process, besides=self.port)
        self.process.ready(lambda: pages.fetch(health, "readyz")[0] == 200, "it serves")
