"""Kueue beside a cluster: its definitions, its webhooks and its one process, as its own manifests have them.

Two things differ from an installation: the webhooks are called at a loopback address, and the process runs with an
administrator's rights, since none of its rights are of interest here.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.cluster.certificates import Authority
from support.cluster.cluster import Cluster
from support.cluster.control_plane import answers
from support.host import ports
from support.host.processes import Process
from support.peers import build as peers
from support.peers import module_files

Json = dict[str, Any]
COMMAND, MODULE = "kueue", "sigs.k8s.io/kueue"
_DEFINITIONS = Path("config/components/crd/bases")
_KUSTOMIZATION = Path("config/components/crd/kustomization.yaml")
_WEBHOOKS = Path("config/components/webhook/manifests.yaml")
_GROUPS = {"batch", "kueue.x-k8s.io"}
"""The API groups whose webhooks Kueue serves here: Jobs are the only workloads."""
_CERTIFICATES = Path("etc/kueue/metrics/certs")
"""The certificate of its metrics lies in this directory below /, which is fixed in its code."""


@contextmanager
def kueue(cluster: Cluster, directory: Path) -> Iterator[Process]:
    """Install Kueue and run it in a root directory of its own until the block ends; needs root.

    Raises:
        Missing: there is no Go.
    """
    root = directory / "root"
    port, health = ports.free(), ports.free()
    authority = Authority.create("kueue")
    authority.server(["127.0.0.1"]).write(root / _CERTIFICATES, "tls")
    shutil.copy2(peers.binary(COMMAND), root / COMMAND)
    shutil.copy2(cluster.kubeconfig, root / "kubeconfig")
    (root / "config.json").write_text(json.dumps(_configuration(port, health)))
    source = module_files.source(COMMAND, MODULE)
    cluster.apply(list(_definitions(source, port, authority)))
    cluster.until_kinds_established()
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    words: list[str | Path] = [
        "chroot",
        root,
        f"/{COMMAND}",
        "--config=/config.json",
        "--kubeconfig=/kubeconfig",
        "--zap-log-level=2",
    ]
    process = Process.start(COMMAND, words, directory / "kueue.log")
    try:
        process.ready(answers(f"http://127.0.0.1:{health}/readyz"), "/readyz answered")
        # Only now do its webhooks answer.
        cluster.apply(list(_webhooks(source, port, authority)))
        yield process
    finally:
        process.stop()


def _configuration(port: int, health: int) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{ports.free()}"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": f"/{_CERTIFICATES}"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 200, "burst": 400},
        "integrations": {"frameworks": ["batch/job"]},
        # It is an aggregated API server, which needs a Service; no test reads it.
        "featureGates": {"VisibilityOnDemand": False},
    }


def _definitions(source: Path, port: int, authority: Authority) -> Iterator[Json]:
    """Yield the definitions; Kueue converts those for which its kustomization has a patch between their versions."""
    (kustomization,) = _documents(source / _KUSTOMIZATION)
    patches = [source / _KUSTOMIZATION.parent / patch["path"] for patch in kustomization["patches"]]
    converted = {patch["metadata"]["name"] for path in patches for patch in _documents(path)}
    for path in sorted((source / _DEFINITIONS).glob("*.yaml")):
        for document in _documents(path):
            if document["metadata"]["name"] in converted:
                webhook = {
                    "clientConfig": _client("/convert", port, authority),
                    "conversionReviewVersions": ["v1"],
                }
                document["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            yield document


def _webhooks(source: Path, port: int, authority: Authority) -> Iterator[Json]:
    for document in _documents(source / _WEBHOOKS):
        document["metadata"]["name"] = f"kueue-{document['metadata']['name']}"
        document["webhooks"] = [
            webhook | {"clientConfig": _client(webhook["clientConfig"]["service"]["path"], port, authority)}
            for webhook in document["webhooks"]
            if any(_GROUPS & set(rule["apiGroups"]) for rule in webhook["rules"])
        ]
        yield document


def _client(path: str, port: int, authority: Authority) -> Json:
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority.base64}


def _documents(path: Path) -> list[Json]:
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]
