"""The children that a PodCliqueSet or a scaling group requires: names, labels and owners are those of Grove. Pure."""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice

from gkm.api.mnnvl_metadata import (
    COMPONENT,
    GROVE_OPERATOR,
    MANAGED_BY,
    OBJECT_NAME,
    PART_OF,
    REPLICA_INDEX,
    SCALING_GROUP,
    SCALING_GROUP_INDEX,
)
from msgspec import json

from gkm_operator.cliques.desired import MAX_CHILDREN, DesiredObject
from gkm_operator.cliques.kinds import (
    CLIQUES,
    GROUPS,
    SERVICES,
    TEMPLATE_HASH,
    CliqueTemplate,
    Json,
    PodCliqueScalingGroup,
    PodCliqueSet,
    ScalingGroupTemplate,
    Words,
)
from gkm_operator.cliques.pods import with_env

_INHERITED = "grove.io/"
"""Scaling groups inherit the annotations of their set that have this prefix."""


def of_set(pcs: PodCliqueSet) -> list[DesiredObject]:
    """Return the children of a set: for each replica its Service, standalone PodCliques and scaling groups."""
    return list(islice(_of_set(pcs), MAX_CHILDREN))


def of_group(pcs: PodCliqueSet, group: PodCliqueScalingGroup) -> list[DesiredObject]:
    """Return the PodCliques of a scaling group of a set."""
    return list(islice(_of_group(pcs, group), MAX_CHILDREN))


def _of_set(pcs: PodCliqueSet) -> Iterator[DesiredObject]:
    name, template = pcs.metadata.name, pcs.spec.template
    grouped = {clique for group in template.pod_clique_scaling_groups for clique in group.clique_names}
    for replica in range(pcs.spec.replicas):
        prefix = f"{name}-{replica}"
        yield _service(pcs, prefix, replica)
        for clique in template.cliques:
            if clique.name not in grouped:
                full = f"{prefix}-{clique.name}"
                yield _clique(pcs, clique, full, _labels(name, full, "pcs-podclique", replica), clique.spec.pod_spec)
        for group in template.pod_clique_scaling_groups:
            yield _group(pcs, group, f"{prefix}-{group.name}", replica)


def _of_group(pcs: PodCliqueSet, group: PodCliqueScalingGroup) -> Iterator[DesiredObject]:
    name, full = pcs.metadata.name, group.metadata.name
    replica = group.metadata.labels.get(REPLICA_INDEX, "")
    templates = {clique.name: clique for clique in pcs.spec.template.cliques}
    members = [templates[clique] for clique in group.spec.clique_names if clique in templates]
    variables = {"GROVE_PCSG_TEMPLATE_NUM_PODS": str(sum(clique.spec.replicas or 1 for clique in members))}
    for index in range(group.spec.replicas):
        for clique in members:
            clique_name = f"{full}-{index}-{clique.name}"
            labels = _labels(name, clique_name, "pcsg-podclique", replica)
            labels |= {SCALING_GROUP: full, SCALING_GROUP_INDEX: str(index)}
            yield _clique(pcs, clique, clique_name, labels, with_env(clique.spec.pod_spec, variables))


def _clique(pcs: PodCliqueSet, clique: CliqueTemplate, name: str, labels: Words, pod_spec: Json) -> DesiredObject:
    priority = pcs.spec.template.priority_class_name
    replicas = clique.spec.replicas or 1  # Grove's webhook replaces 0, too
    spec = {
        "roleName": clique.spec.role_name or clique.name,
        "minAvailable": replicas if clique.spec.min_available is None else clique.spec.min_available,
        "podSpec": pod_spec | ({"priorityClassName": priority} if priority else {}),
    }
    template_hash = _hash((clique.labels, clique.annotations, clique.spec.pod_spec, priority))
    all_labels = clique.labels | labels | {TEMPLATE_HASH: template_hash}
    return DesiredObject(CLIQUES, name, all_labels, spec, clique.annotations, {"replicas": replicas})


def _group(pcs: PodCliqueSet, group: ScalingGroupTemplate, name: str, replica: int) -> DesiredObject:
    inherited = {key: value for key, value in pcs.metadata.annotations.items() if key.startswith(_INHERITED)}
    return DesiredObject(
        GROUPS,
        name,
        _labels(pcs.metadata.name, name, "pcs-podcliquescalinggroup", replica),
        {"cliqueNames": group.clique_names, "minAvailable": group.min_available},
        inherited | group.annotations,
        {"replicas": group.replicas},
    )


def _service(pcs: PodCliqueSet, name: str, replica: int) -> DesiredObject:
    selector = {MANAGED_BY: GROVE_OPERATOR, PART_OF: pcs.metadata.name, REPLICA_INDEX: str(replica)}
    # Pods of a replica find one another before they are ready, as by Grove's default.
    spec = {"selector": selector, "publishNotReadyAddresses": True}
    labels = _labels(pcs.metadata.name, name, "pcs-headless-service", replica)
    return DesiredObject(SERVICES, name, labels, spec, initial={"clusterIP": "None"})


def _labels(pcs: str, name: str, component: str, replica: int | str) -> Words:
    return {
        MANAGED_BY: GROVE_OPERATOR,
        PART_OF: pcs,
        OBJECT_NAME: name,
        COMPONENT: component,
        REPLICA_INDEX: str(replica),
    }


def _hash(parts: Iterable[object]) -> str:
    return hashlib.sha256(json.encode(tuple(parts), order="sorted")).hexdigest()[:10]
