"""Pods as JSON, as a workload's controller, the scheduler and kubelet write them."""

from collections.abc import Mapping
from typing import Any

from support.grove.objects import NAMESPACE, container

Json = dict[str, Any]


def pod(
    name: str,
    gpus: int = 8,
    *,
    namespace: str = NAMESPACE,
    template: str = "",
    domain: str = "",
    node: str = "",
    phase: str = "Pending",
    owner: str = "",
    terminating: bool = False,
    annotations: Mapping[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    started: str = "2026-01-01T00:01:00Z",
) -> Json:
    """A pod with one container; `template` is that of its claim, `domain` its label, `owner` the name of its Job."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-of-{namespace}-{name}",
        "creationTimestamp": created,
        "labels": {"app": "test"} | ({"gkm.io/compute-domain": domain} if domain else {}),
        "annotations": dict(annotations or {}),
    }
    if owner:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-of-{owner}"}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
    claims: Json = {"claims": [{"name": "mnnvl-claim"}]} if template else {}
    spec: Json = {"containers": [container("main", gpus, **claims)]}
    if node:
        spec["nodeName"] = node
    if template:
        spec["resourceClaims"] = [{"name": "mnnvl-claim", "resourceClaimTemplateName": template}]
    status = {"phase": phase} | ({"startTime": started} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
