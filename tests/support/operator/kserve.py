"""KServe without KServe: the part of its kind that our sample uses, and the pod that its controller makes of one.

Sources: kserve/kserve pkg/apis/serving/v1beta1 (PredictorSpec, ComponentExtensionSpec, ModelSpec; group, kind and names
are those of config/crd), pkg/controller/v1beta1/inferenceservice/components/predictor.go (buildPredictorResources:
labels and annotations of the service and of its predictor come to the pod; the container is `kserve-container`).
"""

from typing import Any

Json = dict[str, Any]

_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}}
_ANY: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_MODEL: Json = {
    "type": "object",
    "required": ["modelFormat"],
    "properties": {
        "modelFormat": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "version": {"type": "string"}},
        },
        "runtime": {"type": "string"},
        "storageUri": {"type": "string"},
        "args": {"type": "array", "items": {"type": "string"}},
        "resources": _ANY,
    },
}
_PREDICTOR: Json = {"type": "object", "properties": {"labels": _TEXTS, "annotations": _TEXTS, "model": _MODEL}}


def inference_service_kind() -> Json:
    """Return a definition with a closed schema: the API server refuses fields that are not in it."""
    spec = {"type": "object", "required": ["predictor"], "properties": {"predictor": _PREDICTOR}}
    schema = {"type": "object", "properties": {"spec": spec, "status": _ANY}}
    versions = [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"kind": "InferenceService", "plural": "inferenceservices", "singular": "inferenceservice"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "inferenceservices.serving.kserve.io"},
        "spec": {"group": "serving.kserve.io", "scope": "Namespaced", "names": names, "versions": versions},
    }


def predictor_pod(service: Json) -> Json:
    """Return the pod of a predictor, with the sidecar that queues its requests."""
    metadata, predictor = service["metadata"], service["spec"]["predictor"]
    name, model = metadata["name"], predictor["model"]
    labels = {**metadata.get("labels", {}), **predictor.get("labels", {})}
    own = {"serving.kserve.io/inferenceservice": name, "component": "predictor"}
    serving = {
        "name": "kserve-container",
        "image": "registry.test/kserve/huggingfaceserver:1",
        "args": model.get("args", []),
        "env": [{"name": "INFERENCE_SERVICE_NAME", "value": name}],
        "resources": model.get("resources", {}),
    }
    queue = {"name": "queue-proxy", "image": "registry.test/knative/queue:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-predictor-0",
            "namespace": metadata["namespace"],
            "labels": labels | own,
            "annotations": {**metadata.get("annotations", {}), **predictor.get("annotations", {})},
        },
        "spec": {"containers": [queue, serving]},
    }
