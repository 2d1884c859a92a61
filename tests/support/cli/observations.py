"""What `gkm doctor` may have read of a cluster, for tests of its checks."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml
from gkm.api.caches import GKMCache
from gkm.api.nodes import GKMCacheNode
from gkm_cli.doctor.findings import Finding
from gkm_cli.doctor.installation.objects import NAME_LABEL, InstalledNode, InstalledPod
from gkm_cli.doctor.installation.observation import CERT_MANAGER
from gkm_cli.doctor.installation.observed import InstallationFacts
from msgspec import convert

Json = dict[str, Any]
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
CUTOFF = "2026-11-23T11:59:00Z"
OLD, YOUNG = CUTOFF, "2026-11-23T11:59:01Z"
GPUS: Json = {"capacity": {"nvidia.com/gpu": "8"}}


def observed(**values: Any) -> InstallationFacts:  # noqa: ANN401 -- any field
    return InstallationFacts(now=NOW, cutoff=CUTOFF, **values)


def briefly(found: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity.value, finding.object) for finding in found]


def cache(
    image: str = "registry.example/team/caches/llama:1",
    namespace: str = "ml-apps",
    verified: tuple[str, str] | None = None,
) -> GKMCache:
    """A cache; `verified` is status and reason of its condition Verified, which changed long ago."""
    made: Json = {"kind": "GKMCache", "metadata": {"name": "llama", "namespace": namespace}, "spec": {"image": image}}
    if verified:
        status, reason = verified
        condition = {"type": "Verified", "status": status, "reason": reason, "message": "m", "lastTransitionTime": OLD}
        made["status"] = {"image": image, "conditions": [condition]}
    return convert(made, GKMCache)


def report(name: str, *, created: str = OLD, **fields: Any) -> GKMCacheNode:  # noqa: ANN401 -- fields of the state
    """The report of a node with this name about the cache."""
    metadata = {"name": name, "namespace": "ml-apps", "creationTimestamp": created}
    made = {"kind": "GKMCacheNode", "metadata": metadata, "spec": {"nodeName": name}}
    return convert(made | {"status": {"caches": {"llama": fields}}}, GKMCacheNode)


def node(name: str = "n", *, created: str = OLD, **status: Any) -> InstalledNode:  # noqa: ANN401 -- fields of the status
    labels = status.pop("labels", {"kubernetes.io/os": "linux"})
    return convert(
        {"metadata": {"name": name, "labels": labels, "creationTimestamp": created}, "status": status}, InstalledNode
    )


def pod(program: str, *, node: str = "n", created: str = OLD, ready: tuple[str, str] | None = None) -> InstalledPod:
    """A pod of GKM; `ready` is status and time of its condition Ready."""
    metadata = {"name": f"{program}-{node}", "creationTimestamp": created, "labels": {NAME_LABEL: program}}
    conditions = [{"type": "Ready", "status": ready[0], "lastTransitionTime": ready[1]}] if ready else []
    made = {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running", "conditions": conditions}}
    return convert(made, InstalledPod)


def hook(*pems: bytes, by_cert_manager: bool = False) -> Json:
    annotations = {CERT_MANAGER: "gkm-system/gkm-admission"} if by_cert_manager else {}
    bundle = base64.b64encode(b"".join(pems)).decode()
    return {"metadata": {"annotations": annotations}, "webhooks": [{"clientConfig": {"caBundle": bundle}}]}


def config(**verification: Any) -> Json:  # noqa: ANN401 -- a section of the configuration
    return {"data": {"config.yaml": yaml.safe_dump({"verification": verification})}}
