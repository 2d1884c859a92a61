"""A webhook that cannot serve: without the right to write its CA it names the rule and waits; what the runbook does."""

import re
import shlex
from pathlib import Path

from support.cluster.certificates import Authority
from support.cluster.cluster import Cluster
from support.host import listening, pages, ports
from support.operator.deployment import ROOT, manifests, operator

SOMEBODY = "system:serviceaccount:default:default"


def test_the_process_logs_a_missing_right_and_waits_for_it(gkm_cluster: Cluster, tmp_path: Path) -> None:
    webhook = ports.free()
    arguments = (
        "admission",
        f"--listen=127.0.0.1:{webhook}",
        "--health=127.0.0.1:0",
        f"--self-signed={tmp_path / 'tls'}",
        "--webhook-configuration=gkm-caches",
        f"--kubeconfig={gkm_cluster.kubeconfig_for(SOMEBODY)}",
    )
    with operator(tmp_path, *arguments) as process:

        def log_text() -> str:
            return process.log.read_text(encoding="utf-8")

        process.ready(lambda: "cannot get resource" in log_text(), "it says what it may not do")
        health = listening.address(process, besides=webhook)
        assert '\\"configmaps\\"' in log_text()
        assert '"event": "admission webhook serving"' not in log_text()
        assert (status(health, "healthz"), status(health, "readyz")) == (200, 503)
        # What GKMAdmissionDown and GKMAdmissionCertificate read of such a process.
        _, metrics = pages.fetch(health, "metrics")
        assert 'gkm_ready{program="gkm-operator-admission"} 0.0' in metrics
        assert 'task="certificate"' not in metrics
        process.stop()
        assert process.popen.returncode == 0, process.tail()


def status(health: str, page: str) -> int:
    return pages.fetch(health, page)[0]


def test_the_runbook_lets_changes_pass_without_a_webhook_and_makes_it_mandatory_again(gkm_cluster: Cluster) -> None:
    """By its two commands; what other writers own, such as the CA, stays."""
    page = (ROOT / "docs" / "runbooks" / "admission.md").read_text(encoding="utf-8")
    off, on = re.findall(r"^\$ kubectl (patch validatingwebhookconfiguration .+)$", page, re.MULTILINE)
    (shipped,) = (each for each in manifests() if each["kind"] == "ValidatingWebhookConfiguration")
    shipped["webhooks"][0]["clientConfig"]["caBundle"] = Authority.create().base64
    # No cache of this shared cluster is asked about.
    shipped["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"no": "namespace"}}
    shipped["webhooks"][0]["rules"][0]["resources"] = ["none"]

    def webhook() -> dict[str, object]:
        (found,) = gkm_cluster.get("validatingwebhookconfiguration", "gkm-caches")["webhooks"]
        return dict(found)

    try:
        gkm_cluster.apply(shipped)
        before = webhook()
        gkm_cluster.kubectl(*shlex.split(off))
        assert webhook() == before | {"failurePolicy": "Ignore"}
        gkm_cluster.kubectl(*shlex.split(on))
        assert webhook() == before
        assert before["failurePolicy"] == "Fail"
    finally:
        gkm_cluster.objects.delete_named("validatingwebhookconfiguration", "gkm-caches")
