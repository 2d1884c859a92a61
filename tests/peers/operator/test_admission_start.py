"""The webhook's process without the right to write its CA: it names the missing rule, stays, and is not ready."""

from pathlib import Path

import pytest
from support.cluster.cluster import Cluster
from support.host import pages, ports
from support.operator.deployment import operator

pytestmark = pytest.mark.peers
SOMEBODY = "system:serviceaccount:default:default"


def test_the_process_logs_a_missing_right_and_waits_for_it(gkm_cluster: Cluster, tmp_path: Path) -> None:
    health = f"127.0.0.1:{ports.free()}"
    arguments = (
        "admission",
        f"--listen=127.0.0.1:{ports.free()}",
        f"--health={health}",
        f"--self-signed={tmp_path / 'tls'}",
        "--webhook-configuration=gkm-caches",
        f"--kubeconfig={gkm_cluster.kubeconfig_for(SOMEBODY)}",
    )
    with operator(tmp_path, *arguments) as process:

        def log_text() -> str:
            return process.log.read_text(encoding="utf-8")

        process.ready(lambda: "cannot get resource" in log_text(), "it says what it may not do")
        assert '\\"validatingwebhookconfigurations\\"' in log_text()
        assert '"event": "serving"' not in log_text()
        assert (status(health, "healthz"), status(health, "readyz")) == (200, 503)
        process.stop()
        assert process.popen.returncode == 0, process.tail()


def status(health: str, page: str) -> int:
    return pages.fetch(health, page)[0]
