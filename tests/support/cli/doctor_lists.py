"""Lists for the checks of `gkm doctor`, from objects as the API server stores them."""

import copy
import json
from collections.abc import Sequence
from typing import Any

from gkm.kube import decoding
from gkm_cli.doctor.domains.listed import COLLECTIONS, Listed
from gkm_cli.doctor.findings import Finding
from support.grove.objects import NAMESPACE

Json = dict[str, Any]
OLD, CUTOFF, YOUNG = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z"
SET_LABELS = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "llama"}
NVIDIA_LABEL = "resource.nvidia.com/computeDomain"


def stored(made: Json, uid: str = "", created: str = OLD, **metadata: Any) -> Json:  # noqa: ANN401 -- JSON
    """An object with the metadata that an API server adds; `metadata` is more of it."""
    found = copy.deepcopy(made)
    found["metadata"] |= {"uid": uid or f"uid-of-{made['metadata']['name']}", "resourceVersion": "1"}
    found["metadata"] |= {"creationTimestamp": created, **metadata}
    return found


def listed(namespace: str = "", **lists: Sequence[Json]) -> Listed:
    """The lists as the command decodes them."""
    decoded: dict[str, Any] = {
        field: [decoding.single_object(COLLECTIONS[field].resource, json.dumps(made).encode()) for made in objects]
        for field, objects in lists.items()
    }
    return Listed(cutoff=CUTOFF, namespace=namespace, **decoded)


def brief(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """The severity and the object of each finding."""
    return [(found.severity.value, found.object) for found in findings]


def owner(kind: str, name: str, uid: str = "", group: str = "grove.io/v1alpha1") -> Json:
    """An owner reference to an object with the uid that `stored` gives."""
    return {"apiVersion": group, "kind": kind, "name": name, "uid": uid or f"uid-of-{name}", "controller": True}


def pod(name: str, template: str = "", claim: str = "mnnvl-claim", phase: str = "Pending", **labels: str) -> Json:
    """A pod with one claim from a template, which is not made yet."""
    claims = [{"name": claim, "resourceClaimTemplateName": template}] if template else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "registry.test/app:1"}], "resourceClaims": claims},
        "status": {"phase": phase},
    }


def claim(name: str, domain_uid: object, *, pod_uid: str = "", kind: str = "ComputeDomainChannelConfig") -> Json:
    """An allocated claim as NVIDIA's template makes it, reserved for a pod."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "domainID": domain_uid}
    config = [{"requests": ["channel"], "opaque": {"driver": "compute-domain.nvidia.com", "parameters": parameters}}]
    device_class = "compute-domain-default-channel.nvidia.com"
    requests = [{"name": "channel", "exactly": {"deviceClassName": device_class}}]
    result = {"request": "channel", "driver": "compute-domain.nvidia.com", "pool": "node-0", "device": "channel-0"}
    reserved = [{"resource": "pods", "name": "gone", "uid": pod_uid}] if pod_uid else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": requests, "config": config}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved},
    }
