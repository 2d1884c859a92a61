"""ResourceClaims as the API server has them."""

from typing import Any

Json = dict[str, Any]


def claim(
    name: str,
    node: str,
    *devices: str,
    pods: tuple[str, ...] = (),
    driver: str = "gpu.nvidia.com",
    admin: bool | None = None,
    annotations: dict[str, str] | None = None,
    namespace: str = "team",
) -> Json:
    """A claim to which devices of a node are allocated, and the pods that use it."""
    results = [{"request": "gpus", "driver": driver, "pool": node, "device": device} for device in devices]
    for result in results if admin is not None else ():
        result["adminAccess"] = admin  # type: ignore[assignment]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    status: Json = {"reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]}
    if devices:
        status["allocation"] = {"devices": {"results": results}, "nodeSelector": selector}
    meta: Json = {"name": name, "namespace": namespace}
    if annotations:
        meta["annotations"] = annotations
    exactly = {"deviceClassName": driver, "allocationMode": "ExactCount", "count": max(1, len(devices))}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": spec,
        "status": status,
    }
