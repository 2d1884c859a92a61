"""The real kube-state-metrics beside a cluster, with our file and the rights that our documentation gives it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.host import pages, ports
from support.host.processes import Process
from support.operator.deployment import ROOT
from support.peers import build as peers

FILES = ROOT / "deploy" / "monitoring"
SPACE, ACCOUNT = "monitoring", "kube-state-metrics"


@contextmanager
def state_metrics(cluster: Cluster, directory: Path) -> Iterator[tuple[str, Process]]:
    """Run it until the block ends; yield its address."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": SPACE}}
    cluster.apply([namespace(SPACE), account])
    cluster.apply(FILES / "state-metrics-role.yaml")
    words = ("create", "clusterrolebinding", "gkm-kube-state-metrics", "--clusterrole=gkm-state-metrics")
    cluster.kubectl(*words, f"--serviceaccount={SPACE}:{ACCOUNT}")
    port = ports.free()
    command: list[str | Path] = [
        peers.binary("kube-state-metrics"),
        f"--kubeconfig={cluster.kubeconfig_for(f'system:serviceaccount:{SPACE}:{ACCOUNT}')}",
        "--custom-resource-state-only",
        f"--custom-resource-state-config-file={FILES / 'custom-resource-state.yaml'}",
        *("--host=127.0.0.1", f"--port={port}", "--telemetry-host=127.0.0.1", f"--telemetry-port={ports.free()}"),
    ]
    process = Process.start("kube-state-metrics", command, directory / "kube-state-metrics.log")
    try:
        address = f"127.0.0.1:{port}"
        process.ready(lambda: pages.fetch(address, "healthz")[0] == 200, "it is healthy")
        yield address, process
    finally:
        process.stop()


def samples(address: str) -> list[Sample]:
    """Return what it exposes now."""
    text = pages.fetch(address, "metrics")[1]
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
