"""CustomResourceDefinitions with the names of ours that are upstream GKM's."""

from typing import Any

Json = dict[str, Any]


def upstream(plural: str = "gkmcaches", kind: str = "GKMCache", scope: str = "Namespaced") -> Json:
    """A definition with our names and fields that upstream GKM has: what a cluster is after its chart."""
    integers = {name: {"type": "integer"} for name in ("nodeCnt", "nodeInUseCnt", "podRunningCnt")}
    status: Json = {
        "resolvedDigest": {"type": "string"},
        "pvcOwner": {"type": "string"},
        "counts": {"type": "object", "properties": integers},
        "lastUpdated": {"type": "string", "format": "date-time"},
        "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
    }
    spec: Json = {
        "image": {"type": "string", "maxLength": 525},
        "storageClassName": {"type": "string"},
        "workloadNamespaces": {"type": "array", "items": {"type": "string"}},
    }
    parts = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": parts}},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.gkm.io"},
        "spec": {"group": "gkm.io", "scope": scope, "names": names, "versions": [version]},
    }
