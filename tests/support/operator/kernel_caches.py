"""KServe's kernel caches without KServe: definitions of ours of its kinds, and objects of them.

The definitions have the fields that GKM reads and writes, with the rules that KServe's types of autumn 2026 state for
them (docs/decisions/0051-kernel-caches-of-kserve.md). Fields that GKM does not know are kept, as KServe's are.
"""

from typing import Any

from gkm.api.kernel_caches import API_VERSION

Json = dict[str, Any]
DIGEST = "sha256:" + "5" * 64
IMAGE = f"registry.test/kserve/qwen@{DIGEST}"
WORKLOAD, COMPATIBILITY = "sha256:" + "1" * 64, "sha256:" + "2" * 64
SELECTOR = {"accelerator": "nvidia", "pool": "a"}

_TEXT: Json = {"type": "string"}
_NUMBER: Json = {"type": "integer", "minimum": 0}
_FOOTPRINT: Json = {"type": "string", "pattern": "^sha256:[a-f0-9]{64}$"}
_CONDITION: Json = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": _NUMBER,
    },
}


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


_PATH = _object(
    containerName={"type": "string", "minLength": 1},
    containerPath={"type": "string", "minLength": 2, "maxLength": 4096, "pattern": r"^/[^$\x00]+$"},
    ociPath={"type": "string", "default": "io.vllm.cache", "maxLength": 4096},
)
_IDENTITY = _object(
    ("footprints",),
    footprints=_object(workloadFootprint=_FOOTPRINT, compatibilityFootprint=_FOOTPRINT),
    factors={"type": "object", "additionalProperties": _TEXT},
)
_ARTIFACT = _object(
    ("imageReference", "cachePaths", "identity"),
    imageReference={"type": "string", "pattern": "^.+@sha256:[a-f0-9]{64}$"},
    cachePaths={"type": "array", "items": _PATH, "minItems": 1, "maxItems": 64, "x-kubernetes-list-type": "atomic"},
    identity=_IDENTITY,
) | {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "artifact is immutable"}]}
_VERIFICATION = _object(
    ("mode", "state", "verified"),
    mode={"type": "string", "enum": ["none", "cert"]},
    state={"type": "string", "enum": ["Pending", "Succeeded", "Failed", "Skipped"]},
    verified={"type": "boolean"},
    reason=_TEXT,
    message=_TEXT,
    verifiedAt={"type": "string", "format": "date-time"},
)
_NUMBERS = ("nodeCount", "nodesReady", "nodesPreparing", "nodesError")
_STATUS = _object(
    state={"type": "string", "enum": ["Pending", "Preparing", "Ready", "Error"]},
    mountType={"type": "string", "enum": ["oci"]},
    verification=_VERIFICATION,
    usage=_object(totalPodsUsing=_NUMBER),
    counts=_object(_NUMBERS, **dict.fromkeys(_NUMBERS, _NUMBER)),
    conditions={
        "type": "array",
        "items": _CONDITION,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    },
)
_SPEC = _object(
    ("artifact",),
    artifact=_ARTIFACT,
    mountType={"type": "string", "enum": ["oci"], "default": "oci"},
    nodeGroupRef=_object(name=_TEXT),
)
_GROUP = _object(
    ("nodeSelector",),
    nodeSelector={"type": "object", "minProperties": 1, "additionalProperties": _TEXT},
    tolerations={"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
)


def _definition(kind: str, scope: str, **properties: Json) -> Json:
    group, version = API_VERSION.split("/")
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    status: Json = {"subresources": {"status": {}}} if "status" in properties else {}
    names = {"kind": kind, "plural": plural}
    spec = {"group": group, "scope": scope, "names": names, "versions": [served | status]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return head | {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


DEFINITIONS = [
    _definition("KernelCache", "Namespaced", spec=_SPEC, status=_STATUS),
    _definition("KernelCacheNodeGroup", "Cluster", spec=_GROUP),
]


def node_group(name: str = "gpu-workers", **spec: Any) -> Json:  # noqa: ANN401 -- JSON
    head = {"apiVersion": API_VERSION, "kind": "KernelCacheNodeGroup", "metadata": {"name": name}}
    return head | {"spec": {"nodeSelector": SELECTOR} | spec}


def kernel_cache(name: str, namespace: str, *, group: str = "gpu-workers", paths: tuple[Json, ...] = ()) -> Json:
    path = {"containerName": "kserve-container", "containerPath": "/root/.cache/vllm", "ociPath": "io.vllm.cache"}
    footprints = {"workloadFootprint": WORKLOAD, "compatibilityFootprint": COMPATIBILITY}
    artifact = {
        "imageReference": IMAGE,
        "cachePaths": list(paths or (path,)),
        "identity": {"footprints": footprints, "factors": {"runtimeImage": "vllm/vllm-openai:v0.20.0"}},
    }
    spec = {"artifact": artifact} | ({"nodeGroupRef": {"name": group}} if group else {})
    return {
        "apiVersion": API_VERSION,
        "kind": "KernelCache",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
