"""A cluster with a running webhook process for caches of certain names; tests read kubectl's output."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.cluster.cluster import Cluster
from support.host import pages, ports
from support.host.waiting import scaled, until
from support.operator.ca_copies import copied
from support.operator.deployment import Shelf, cache, manifests, operator
from support.peers import build as peers

NAMESPACE = "default"
FILE = "kernels.yaml"
"""What people apply: kubectl says its name when it is refused."""


@dataclass(frozen=True)
class Judged:
    """The cluster, and images to name in it."""

    cluster: Cluster
    images: Shelf
    directory: Path

    def apply(self, manifest: dict[str, Any], *arguments: str) -> tuple[int, str]:
        """Apply as a user; return kubectl's exit code and output."""
        (self.directory / FILE).write_text(json.dumps(manifest), encoding="utf-8")
        done = subprocess.run(
            [
                peers.binary("kubectl"),
                f"--kubeconfig={self.cluster.kubeconfig}",
                "apply",
                f"--filename={FILE}",
                *arguments,
            ],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
        return done.returncode, done.stderr + done.stdout


@contextmanager
def judged(cluster: Cluster, images: Shelf, directory: Path, prefix: str, config: str) -> Iterator[Judged]:
    """Review caches named `prefix`… under `config` until the block ends; the process must end cleanly."""
    configuration = f"gkm-caches-{prefix}"
    port = ports.free()
    (directory / "config.yaml").write_text(config, encoding="utf-8")
    arguments = (
        "admission",
        f"--config={directory / 'config.yaml'}",
        f"--listen=127.0.0.1:{port}",
        "--health=127.0.0.1:0",
        f"--self-signed={directory / 'tls'}",
        "--tls-names=127.0.0.1",
        f"--webhook-configuration={configuration}",
        f"--kubeconfig={cluster.kubeconfig}",
    )
    _configure(cluster, configuration, port, prefix)
    try:
        with copied(cluster, [configuration], "admin"), operator(directory, *arguments) as process:
            pages.wait_until_ready(process, besides=port)
            running = Judged(cluster, images, directory)
            # An API server takes a moment to see a changed configuration. The schema lets this one pass.
            probe = cache(f"{prefix}-probe", "registry.test/No/Reference", NAMESPACE)
            until(lambda: "InvalidReference" in running.apply(probe, "--dry-run=server")[1], "the webhook is asked")
            yield running
            process.stop()
            assert process.popen.returncode == 0, process.tail()
    finally:
        cluster.objects.delete_named("validatingwebhookconfiguration", configuration)


def _configure(cluster: Cluster, name: str, port: int, prefix: str) -> None:
    (found,) = (manifest for manifest in manifests() if manifest["kind"] == "ValidatingWebhookConfiguration")
    found["metadata"]["name"] = name
    (hook,) = found["webhooks"]
    hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
    ours = f"object.metadata.name.startsWith('{prefix}-')"
    hook["matchConditions"].append({"name": "ours", "expression": ours})
    cluster.apply(found)
