"""PodCliqueSets, PodCliques and ComputeDomains as JSON, as users, Grove's operator and NVIDIA's driver write them."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
NAMESPACE = "team"
GPU = "nvidia.com/gpu"


def container(name: str, gpus: int | str = 0, resource: str = GPU, **resources: Any) -> Json:  # noqa: ANN401 -- JSON
    """A container that requests GPUs by a limit, or none."""
    limits = {resource: str(gpus)} if str(gpus) != "0" else {"cpu": "1"}
    return {"name": name, "image": "registry.test/app:1", "resources": {"limits": limits, **resources}}


def clique(
    name: str,
    gpus: int = 8,
    *,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
    **pod: Any,  # noqa: ANN401 -- JSON
) -> Json:
    """A clique template with one container; `pod` holds further fields of its pod specification."""
    pod_spec: Json = {"containers": [container("main", gpus)], **pod}
    made: Json = {
        "name": name,
        "spec": {"roleName": name, "replicas": replicas, "minAvailable": 1, "podSpec": pod_spec},
    }
    return made | ({"annotations": dict(annotations)} if annotations is not None else {})


def scaling_group(name: str, *cliques: str, replicas: int = 1, annotations: Mapping[str, str] | None = None) -> Json:
    """The template of a scaling group."""
    made: Json = {"name": name, "cliqueNames": list(cliques), "replicas": replicas, "minAvailable": 1}
    return made | ({"annotations": dict(annotations)} if annotations is not None else {})


def pod_clique_set(
    name: str = "test-pcs",
    *cliques: Json,
    replicas: int = 1,
    annotations: Mapping[str, str] | None = None,
    scaling_groups: Sequence[Json] = (),
    namespace: str = NAMESPACE,
) -> Json:
    """A PodCliqueSet; by default with the one clique `worker` of one container with 8 GPUs (grove-04)."""
    template: Json = {"cliques": list(cliques) or [clique("worker")]}
    if scaling_groups:
        template["podCliqueScalingGroups"] = list(scaling_groups)
    metadata: Json = {"name": name, "namespace": namespace}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": metadata,
        "spec": {"replicas": replicas, "template": template},
    }


def shared_claim(name: str = "shared", *, namespace: str = "", **names: Sequence[str]) -> Json:
    """An entry of `resourceSharing`; `names` are those of its filter, with one."""
    made: Json = {"name": name, "scope": "AllReplicas"}
    made |= {"namespace": namespace} if namespace else {}
    return made | ({"filter": {key: list(found) for key, found in names.items()}} if names else {})


def sharing_set(made: Json, device_class: str, *shared: Json, of: str = "") -> Json:
    """The set with a claim template `shared` of its own, and claims that all pods, or those of a part `of` it share."""
    template = made["spec"]["template"]
    spec = claim_template("-", device_class)["spec"]
    template["resourceClaimTemplates"] = [{"name": "shared", "templateSpec": spec}]
    parts = [*template["cliques"], *template.get("podCliqueScalingGroups", ())]
    owner = next(one for one in parts if one["name"] == of) if of else template
    owner["resourceSharing"] = list(shared)
    return made


def compute_domain(
    name: str, *, namespace: str = NAMESPACE, template: str = "", labels: Mapping[str, str] | None = None
) -> Json:
    """A ComputeDomain as a user writes it."""
    return {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": template or name}}},
    }


def claim_template(
    name: str, device_class: str, *, namespace: str = NAMESPACE, labels: Mapping[str, str] | None = None
) -> Json:
    """A ResourceClaimTemplate that requests one device of a class."""
    requests = [{"name": "request", "exactly": {"deviceClassName": device_class}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
