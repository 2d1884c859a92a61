"""The pods of a PodClique: those to delete and those to create. Pure.

A pod is named `PODCLIQUE-INDEX`, so a second create of it, by another leader or after a lost response, conflicts.
"""

from collections.abc import Iterable, Mapping

from gkm.api.mnnvl_metadata import PART_OF, PODCLIQUE, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX

from gkm_operator.cliques.desired import MAX_CHILDREN, DesiredObject, Difference
from gkm_operator.cliques.kinds import PODS, TEMPLATE_HASH, ChildPod, Json, PodClique

POD_INDEX = "grove.io/podclique-pod-index"


def pod_difference(clique: PodClique, pods: Iterable[ChildPod]) -> Difference:
    """Return the missing pods: for each index a pod of the clique's template hash that has not ended.

    A name is free once its pod is gone, so a replacement is created in a later pass.
    """
    replicas = 1 if clique.spec.replicas is None else clique.spec.replicas
    indices = {f"{clique.metadata.name}-{index}": index for index in range(min(replicas, MAX_CHILDREN))}
    present = {pod.metadata.name: pod for pod in pods}
    template_hash = clique.metadata.labels.get(TEMPLATE_HASH, "")
    delete = [
        pod
        for name, pod in present.items()
        if not pod.metadata.terminating
        and (name not in indices or pod.ended or pod.metadata.labels[TEMPLATE_HASH] != template_hash)
    ]
    create = [_pod(clique, name, index) for name, index in indices.items() if name not in present]
    return Difference(delete, (), create)


def _pod(clique: PodClique, name: str, index: int) -> DesiredObject:
    metadata, labels = clique.metadata, clique.metadata.labels
    pcs, replica = labels.get(PART_OF, ""), labels.get(REPLICA_INDEX, "")
    service = f"{pcs}-{replica}"
    variables = {
        "GROVE_PCS_NAME": pcs,
        "GROVE_PCS_INDEX": replica,
        "GROVE_PCLQ_NAME": metadata.name,
        "GROVE_HEADLESS_SERVICE": f"{service}.{metadata.namespace}.svc.cluster.local",
        "GROVE_PCLQ_POD_INDEX": str(index),
    }
    if SCALING_GROUP in labels:
        variables |= {"GROVE_PCSG_NAME": labels[SCALING_GROUP], "GROVE_PCSG_INDEX": labels.get(SCALING_GROUP_INDEX, "")}
    return DesiredObject(
        PODS,
        name,
        labels | {PODCLIQUE: metadata.name, POD_INDEX: str(index)},
        with_env(clique.spec.pod_spec, variables) | {"hostname": name, "subdomain": service},
        metadata.annotations,
    )


def with_env(pod_spec: Json, variables: Mapping[str, str]) -> Json:
    """Return a pod specification whose containers have these variables first, except those that they set themselves.

    What should be a list and is none is passed on: the API server refuses the pod, and names the field.
    """
    lists = {
        kind: [_with_env(one, variables) for one in pod_spec[kind]]
        for kind in ("initContainers", "containers")
        if isinstance(pod_spec.get(kind), list)
    }
    return pod_spec | lists


def _with_env(container: object, variables: Mapping[str, str]) -> object:
    if not isinstance(container, dict) or not isinstance(own := container.get("env") or [], list):
        return container
    set_by_user = {one.get("name") for one in own if isinstance(one, dict)}
    ours = [{"name": name, "value": value} for name, value in variables.items() if name not in set_by_user]
    return container | {"env": [*ours, *own]}
