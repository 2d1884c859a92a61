"""The ComputeDomains that a PodCliqueSet requires, and the place of a PodClique in it."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.grove import CliqueTemplate, PodClique, PodCliqueSet, ScalingGroupTemplate
from gkm.api.mnnvl_metadata import AUTO_MNNVL, PART_OF, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX

from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests, no_device_classes
from gkm_operator.mnnvl.naming import alternative_name, domain_name

MAX_DOMAINS = 10_000
"""Domains of one set: 180,000 nodes at 18 in each. A set that requires more is refused (`limit_problem`)."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class SetDomainKey:
    """One domain of a set; the group is "" for that of a whole replica."""

    replica: int
    group: str


def required_groups(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> frozenset[str]:
    """Return the groups of a set that need a domain: those of cliques that request GPUs.

    auto-mnnvl alone decides without the GPUs: its annotation is set only where GPUs are requested.
    """
    with_gpus = gpus.cliques(pod_clique_set, classes)
    found = {
        dialect.group_of(pod_clique_set, clique, scaling_group)
        for clique, scaling_group in pod_clique_set.memberships()
        if clique.name in with_gpus
    }
    if pod_clique_set.metadata.annotation(AUTO_MNNVL) == dialect.ENABLED and not dialect.names_groups(pod_clique_set):
        found.add(dialect.WHOLE_SET)
    return frozenset(group for group in found if group is not None)


def required_domains(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> frozenset[SetDomainKey]:
    """Return one domain for each replica and group.

    Beyond MAX_DOMAINS the last replicas have none, which `limit_problem` reports: HPA may scale a set past admission.
    """
    groups = required_groups(pod_clique_set, gpus, classes)
    replicas = min(pod_clique_set.replicas, MAX_DOMAINS // max(len(groups), 1))
    return frozenset(SetDomainKey(replica, group) for replica in range(replicas) for group in groups)


def limit_problem(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> str | None:
    """Return why a set requires too many domains, None if it does not: for an event, and to refuse a new set.

    Refuse an update only if the old set had no such problem: an update by a controller must not fail.
    """
    groups, replicas = len(required_groups(pod_clique_set, gpus, classes)), pod_clique_set.replicas
    if groups * replicas <= MAX_DOMAINS:
        return None
    return (
        f"{replicas} replicas with {groups} MNNVL groups require {groups * replicas} ComputeDomains, and the limit of "
        f"a PodCliqueSet is {MAX_DOMAINS}: use at most {MAX_DOMAINS // groups} replicas, or several PodCliqueSets"
    )


def names_domain(pod_clique_set: PodCliqueSet, replica: int, name: str) -> bool:
    """Return whether a domain of a replica of the set may have a name, whether or not the set requires it now."""
    groups = {
        dialect.group_of(pod_clique_set, clique, scaling_group)
        for clique, scaling_group in pod_clique_set.memberships()
    }
    return any(
        name == make(pod_clique_set.metadata.name, replica, group)
        for group in groups
        if group is not None
        for make in (domain_name, alternative_name)
    )


class Membership(NamedTuple):
    """The place of a PodClique in its set; None for a template that the set does not have any more."""

    replica: int
    clique: CliqueTemplate | None
    scaling_group: ScalingGroupTemplate | None


def membership_of(pod_clique_set: PodCliqueSet, pod_clique: PodClique) -> Membership | None:
    """Return the place of a PodClique in the set; None if it has none.

    The template is found by the exact name: a suffix would take `gpu-worker` for `worker`.
    """
    metadata = pod_clique.metadata
    replica = replica_index(metadata.label(REPLICA_INDEX))
    if metadata.label(PART_OF) != pod_clique_set.metadata.name or replica is None:
        return None
    start = f"{pod_clique_set.metadata.name}-{replica}-"
    scaling_group = None
    if in_group := metadata.label(SCALING_GROUP):
        scaling_group = next((found for found in pod_clique_set.scaling_groups if start + found.name == in_group), None)
        start = f"{in_group}-{metadata.label(SCALING_GROUP_INDEX)}-"
    if not metadata.name.startswith(start):
        return None
    name = metadata.name.removeprefix(start)
    return Membership(
        replica, next((found for found in pod_clique_set.cliques if found.name == name), None), scaling_group
    )


def domain_of(pod_clique_set: PodCliqueSet, pod_clique: PodClique) -> SetDomainKey | None:
    """Return the domain that a PodClique of the set belongs to; None if it belongs to none.

    The set may not require it: no template in the group requests GPUs, or the replica was scaled in.
    """
    place = membership_of(pod_clique_set, pod_clique)
    group = dialect.group_of(pod_clique_set, place.clique, place.scaling_group) if place else None
    return None if place is None or group is None else SetDomainKey(place.replica, group)


def replica_index(label: str) -> int | None:
    """Return the index that a label states; None if it is not the one text of an index."""
    return int(label) if _INDEX.fullmatch(label) else None
