"""The ComputeDomains that a PodCliqueSet requires, and the template that a PodClique was made from."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gkm.api.grove import PodClique, PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, PART_OF, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX

from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests, no_device_classes

MAX_DOMAINS = 10_000
"""Domains of one set: 200,000 pods at 18 nodes each. A set that requires more is refused at its creation."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class DomainKey:
    """One domain of a set; the group is "" for that of a whole replica."""

    replica: int
    group: str


def required_groups(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> frozenset[str]:
    """Return the groups of a set that need a domain: those of cliques that request GPUs.

    auto-mnnvl alone decides without the GPUs: its annotation is set only where GPUs are requested (seed 000).
    """
    found = {
        group
        for clique in pod_clique_set.cliques
        if (group := dialect.group_of(pod_clique_set, clique.name)) is not None
        and gpus.any(clique.spec.pod_spec, classes)
    }
    if pod_clique_set.metadata.annotation(AUTO_MNNVL) == dialect.ENABLED and not dialect.speaks_groups(pod_clique_set):
        found.add(dialect.WHOLE_SET)
    return frozenset(found)


def required_domains(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> frozenset[DomainKey]:
    """Return one domain for each replica and group; at most MAX_DOMAINS."""
    groups = sorted(required_groups(pod_clique_set, gpus, classes))
    replicas = min(pod_clique_set.replicas, MAX_DOMAINS // max(len(groups), 1))
    return frozenset(DomainKey(replica, group) for replica in range(replicas) for group in groups)


def domain_of(pod_clique_set: PodCliqueSet, pod_clique: PodClique) -> DomainKey | None:
    """Return the domain that a PodClique of the set belongs to; None if it belongs to none.

    The template is found by the exact name: a suffix would take `gpu-worker` for `worker`.
    """
    metadata = pod_clique.metadata
    replica = replica_index(metadata.label(REPLICA_INDEX))
    if metadata.label(PART_OF) != pod_clique_set.metadata.name or replica is None:
        return None
    for prefix in _prefixes(pod_clique_set.metadata.name, replica, pod_clique):
        if metadata.name.startswith(prefix):
            group = dialect.group_of(pod_clique_set, metadata.name.removeprefix(prefix))
            return None if group is None else DomainKey(replica, group)
    return None


def replica_index(label: str) -> int | None:
    """Return the index that a label states; None if it is not the one text of an index."""
    return int(label) if _INDEX.fullmatch(label) else None


def _prefixes(name: str, replica: int, pod_clique: PodClique) -> Iterator[str]:
    scaling_group = pod_clique.metadata.label(SCALING_GROUP)
    if scaling_group:
        yield f"{scaling_group}-{pod_clique.metadata.label(SCALING_GROUP_INDEX)}-"
    else:
        yield f"{name}-{replica}-"
