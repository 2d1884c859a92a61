"""The objects that the real Grove operator makes of a PodCliqueSet, as JSON (its main branch of August 2026).

Faithful also where the real operator errs: the template of a PodClique is the first one whose name ends its name.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

GROVE_VERSION = "grove.io/v1alpha1"
SET_FINALIZER = "grove.io/podcliqueset.grove.io"
CLIQUE_FINALIZER = "grove.io/podclique.grove.io"
GROUP_FINALIZER = "grove.io/podcliquescalinggroup.grove.io"
AUTO_MNNVL, MNNVL_GROUP = "grove.io/auto-mnnvl", "grove.io/mnnvl-group"
REPLICA = "grove.io/podcliqueset-replica-index"
GROUP, GROUP_REPLICA = "grove.io/podcliquescalinggroup", "grove.io/podcliquescalinggroup-replica-index"
GANG, BASE_GANG = "grove.io/podgang", "grove.io/base-podgang"
CLIQUE, POD_INDEX, HASH = "grove.io/podclique", "grove.io/podclique-pod-index", "grove.io/pod-template-hash"
PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"


def services(pcs: Json) -> Iterator[Json]:
    """Yield the headless Service of each replica."""
    name = pcs["metadata"]["name"]
    ready_or_not = pcs["spec"]["template"].get("headlessServiceConfig", {}).get("publishNotReadyAddresses", True)
    for replica in range(replicas_of(pcs)):
        selector = _managed(name) | {REPLICA: str(replica)}
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(
                pcs, f"{name}-{replica}", _labels(name, f"{name}-{replica}", "pcs-headless-service", replica)
            ),
            "spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": ready_or_not},
        }


def standalone_cliques(pcs: Json) -> Iterator[Json]:
    """Yield the PodCliques outside scaling groups."""
    name = pcs["metadata"]["name"]
    grouped = {clique for group in groups_of(pcs) for clique in group["cliqueNames"]}
    for replica in range(replicas_of(pcs)):
        for clique in pcs["spec"]["template"]["cliques"]:
            if clique["name"] in grouped:
                continue
            full = f"{name}-{replica}-{clique['name']}"
            template = template_of(pcs, full)
            labels = _labels(name, full, "pcs-podclique", replica) | {
                GANG: f"{name}-{replica}",
                HASH: template_hash(pcs, template),
            }
            yield _clique(pcs, full, template, labels, clique_spec(template))


def scaling_groups(pcs: Json) -> Iterator[Json]:
    """Yield the scaling groups; they inherit the annotations of MNNVL, and PodCliques do not."""
    name = pcs["metadata"]["name"]
    inherited = pcs["metadata"].get("annotations", {})
    for replica in range(replicas_of(pcs)):
        for group in groups_of(pcs):
            full = f"{name}-{replica}-{group['name']}"
            annotations = dict(group.get("annotations", {}))
            if MNNVL_GROUP in inherited:
                annotations.setdefault(MNNVL_GROUP, inherited[MNNVL_GROUP])
            if inherited.get(AUTO_MNNVL) == "enabled":  # alpha.6 to alpha.8
                annotations[AUTO_MNNVL] = "enabled"
            labels = _labels(name, full, "pcs-podcliquescalinggroup", replica)
            yield {
                "apiVersion": GROVE_VERSION,
                "kind": "PodCliqueScalingGroup",
                "metadata": _metadata(pcs, full, labels, annotations, GROUP_FINALIZER),
                "spec": {
                    "replicas": group.get("replicas", 1),
                    "minAvailable": group.get("minAvailable", 1),
                    "cliqueNames": group["cliqueNames"],
                },
            }


def group_cliques(pcs: Json, group: Json) -> Iterator[Json]:
    """Yield the PodCliques of a scaling group, which owns them."""
    name, full = pcs["metadata"]["name"], group["metadata"]["name"]
    replica = int(group["metadata"]["labels"][REPLICA])
    at_least = group["spec"].get("minAvailable", 1)
    members = [template_of(pcs, clique) for clique in group["spec"]["cliqueNames"]]
    count = sum(clique_spec(template)["replicas"] for template in members)
    for index in range(group["spec"]["replicas"]):
        scaled = {GANG: f"{full}-{index - at_least}", BASE_GANG: f"{name}-{replica}"}
        gang = {GANG: f"{name}-{replica}"} if index < at_least else scaled
        for clique in group["spec"]["cliqueNames"]:
            clique_name = f"{full}-{index}-{clique}"
            template = template_of(pcs, clique_name)
            labels = _labels(name, clique_name, "pcsg-podclique", replica) | gang
            labels |= {GROUP: full, GROUP_REPLICA: str(index), HASH: template_hash(pcs, template)}
            spec = clique_spec(template)
            _prepend_env(
                spec["podSpec"],
                [
                    {"name": "GROVE_PCSG_NAME", "valueFrom": _label_field(GROUP)},
                    {"name": "GROVE_PCSG_TEMPLATE_NUM_PODS", "value": str(count)},
                    {"name": "GROVE_PCSG_INDEX", "valueFrom": _label_field(GROUP_REPLICA)},
                ],
            )
            yield _clique(group, clique_name, template, labels, spec)


def pod(clique: Json, name: str, index: int) -> Json:
    """Return a pod of a PodClique, as it is once its scheduling gate is lifted."""
    metadata = clique["metadata"]
    pcs, replica = metadata["labels"][PART_OF], metadata["labels"][REPLICA]
    labels = metadata["labels"] | {CLIQUE: metadata["name"], POD_INDEX: str(index)}
    spec = copy.deepcopy(clique["spec"]["podSpec"])
    address = f"{pcs}-{replica}.{metadata['namespace']}.svc.cluster.local"
    _prepend_env(
        spec,
        [
            {"name": "GROVE_PCS_NAME", "value": pcs},
            {"name": "GROVE_PCS_INDEX", "value": replica},
            {"name": "GROVE_PCLQ_NAME", "value": metadata["name"]},
            {"name": "GROVE_HEADLESS_SERVICE", "value": address},
            {"name": "GROVE_PCLQ_POD_INDEX", "valueFrom": _label_field(POD_INDEX)},
        ],
    )
    spec |= {"hostname": f"{metadata['name']}-{index}", "subdomain": f"{pcs}-{replica}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(clique, name, labels, metadata.get("annotations", {})),
        "spec": spec,
    }


def replicas_of(pcs: Json) -> int:
    """Return the replicas of a set; none are 0."""
    return int(pcs["spec"].get("replicas", 0))


def groups_of(pcs: Json) -> list[Json]:
    """Return the templates of the scaling groups."""
    return list(pcs["spec"]["template"].get("podCliqueScalingGroups", []))


def template_of(pcs: Json, name: str) -> Json:
    """Return the first template whose name ends the name of a PodClique, which may be another one's."""
    found: Json = next(one for one in pcs["spec"]["template"]["cliques"] if name.endswith(one["name"]))
    return found


def template_hash(pcs: Json, template: Json) -> str:
    """Return a hash of what pods are made from; the real one hashes in another way."""
    priority = pcs["spec"]["template"].get("priorityClassName", "")
    parts = [template.get("labels"), template.get("annotations"), template["spec"]["podSpec"], priority]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:10]


def clique_spec(template: Json) -> Json:
    """Return the spec of a PodClique with the defaults of Grove's webhook; without order at the start."""
    spec: Json = copy.deepcopy(template["spec"])
    spec["replicas"] = spec.get("replicas") or 1
    spec.setdefault("minAvailable", spec["replicas"])
    spec["podSpec"].setdefault("restartPolicy", "Always")
    spec["podSpec"].setdefault("terminationGracePeriodSeconds", 30)
    spec.pop("startsAfter", None)
    return spec


def _clique(owner: Json, name: str, template: Json, labels: Json, spec: Json) -> Json:
    metadata = _metadata(
        owner, name, template.get("labels", {}) | labels, template.get("annotations", {}), CLIQUE_FINALIZER
    )
    return {"apiVersion": GROVE_VERSION, "kind": "PodClique", "metadata": metadata, "spec": spec}


def _metadata(
    owner: Json, name: str, labels: Json, annotations: Mapping[str, str] | None = None, finalizer: str = ""
) -> Json:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made: Json = {
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [reference],
    }
    made |= {"annotations": dict(annotations)} if annotations else {}
    return made | ({"finalizers": [finalizer]} if finalizer else {})


def _managed(pcs: str) -> Json:
    return {"app.kubernetes.io/managed-by": "grove-operator", PART_OF: pcs}


def _labels(pcs: str, name: str, component: str, replica: int) -> Json:
    return _managed(pcs) | {"app.kubernetes.io/name": name, COMPONENT: component, REPLICA: str(replica)}


def _prepend_env(pod_spec: Json, variables: list[Json]) -> None:
    for container in [*pod_spec.get("containers", []), *pod_spec.get("initContainers", [])]:
        container["env"] = copy.deepcopy(variables) + container.get("env", [])


def _label_field(label: str) -> Json:
    return {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
