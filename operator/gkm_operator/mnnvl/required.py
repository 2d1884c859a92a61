"""Compute the ComputeDomains that a PodCliqueSet needs, and compare them with existing ones. Pure.

A name is also the name of the domain's ResourceClaimTemplate, and the value of a label. The comparison must never look
at it: the labels identify a domain, and a name may carry a hash and cannot be parsed without doubt (`foo-0-1-x`).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.computedomains import ComputeDomain
from gkm.api.grove import CliqueTemplate, PodClique, PodCliqueSet, ScalingGroupTemplate
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP, PART_OF, REPLICA_INDEX, SCALING_GROUP, SCALING_GROUP_INDEX

from gkm_operator.mnnvl import dialect
from gkm_operator.mnnvl.gpu_requests import DeviceClasses, GPURequests, no_device_classes

MAX_DOMAINS = 10_000
"""Limit of domains of one set: 180,000 nodes at 18 in each. A set that needs more is refused (`limit_problem`)."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)

MAX_NAME_LENGTH = 63
"""Limit of characters of a name, because it is the value of a label."""
_SUFFIX_LENGTH = 12
"""Number of hexadecimal digits of the hash in a shortened name."""


@dataclass(frozen=True, slots=True, order=True)
class SetDomainKey:
    """Identifies one ComputeDomain of a PodCliqueSet: replica and group; the group is "" for the whole replica."""

    replica: int
    group: str


def required_groups(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> frozenset[str]:
    """Return the MNNVL groups of a PodCliqueSet that need a domain: the groups with cliques that request GPUs.

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
    """Return the keys of the ComputeDomains that a set needs, one for each replica and group, at most MAX_DOMAINS.

    Beyond MAX_DOMAINS the last replicas have no domain, which `limit_problem` reports: HPA may scale a set past
    admission.
    """
    groups = required_groups(pod_clique_set, gpus, classes)
    replicas = min(pod_clique_set.replicas, MAX_DOMAINS // max(len(groups), 1))
    return frozenset(SetDomainKey(replica, group) for replica in range(replicas) for group in groups)


def limit_problem(
    pod_clique_set: PodCliqueSet, gpus: GPURequests, classes: DeviceClasses = no_device_classes
) -> str | None:
    """Return a sentence if a PodCliqueSet needs more ComputeDomains than the limit; None if it does not.

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
    """Return whether a ComputeDomain of a replica of the set can have this name, needed now or not."""
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
    """Where a PodClique belongs in its PodCliqueSet; templates are None if the set does not have them any more."""

    replica: int
    clique: CliqueTemplate | None
    scaling_group: ScalingGroupTemplate | None


def membership_of(pod_clique_set: PodCliqueSet, pod_clique: PodClique) -> Membership | None:
    """Return where a PodClique belongs in the PodCliqueSet; None if it does not belong there.

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
    """Return the key of the ComputeDomain that a PodClique of the set joins; None if it joins none.

    The set may not require it: no template in the group requests GPUs, or the replica was scaled in.
    """
    place = membership_of(pod_clique_set, pod_clique)
    group = dialect.group_of(pod_clique_set, place.clique, place.scaling_group) if place else None
    return None if place is None or group is None else SetDomainKey(place.replica, group)


def replica_index(label: str) -> int | None:
    """Return the replica index in a label; None if the text is no index in canonical form."""
    return int(label) if _INDEX.fullmatch(label) else None


@dataclass(frozen=True, slots=True)
class DomainDifference:
    """Which ComputeDomains of a PodCliqueSet to create and to release.

    `create` lists the required keys without any domain, `lost` the required domains that are being deleted; a key is a
    replica and a group. `release` lists all other domains: of no required key, or a second domain of a key. `present`
    has the domain of each required key, the lost ones left out.
    """

    present: Mapping[SetDomainKey, ComputeDomain]
    create: tuple[SetDomainKey, ...]
    lost: tuple[ComputeDomain, ...]
    release: tuple[ComputeDomain, ...]


def key_of(domain: ComputeDomain) -> SetDomainKey | None:
    """Return the key of an existing ComputeDomain by its labels; None if they do not name a replica."""
    replica = replica_index(domain.metadata.label(REPLICA_INDEX))
    return None if replica is None else SetDomainKey(replica, domain.metadata.label(MNNVL_GROUP))


def difference(required: frozenset[SetDomainKey], domains: Iterable[ComputeDomain]) -> DomainDifference:
    """Compare the ComputeDomains that a PodCliqueSet needs with the existing ones.

    Of several domains with one key, the oldest that is not terminating is present, and the others are excess: pods
    joined the oldest first. Without one, the oldest is lost, because a new domain may need its name.
    """
    first: dict[SetDomainKey, ComputeDomain] = {}
    excess: list[ComputeDomain] = []
    for domain in sorted(domains, key=_precedence):
        key = key_of(domain)
        if key is None or key not in required or key in first:
            excess.append(domain)
        else:
            first[key] = domain
    return DomainDifference(
        present={key: domain for key, domain in first.items() if not domain.metadata.terminating},
        create=tuple(sorted(required - first.keys())),
        lost=tuple(domain for domain in first.values() if domain.metadata.terminating),
        release=tuple(excess),
    )


def _precedence(domain: ComputeDomain) -> tuple[bool, str, str]:
    """Return the order of domains with one key; times of the API server compare as text (RFC 3339, UTC, seconds)."""
    return domain.metadata.terminating, domain.metadata.creation_timestamp, domain.metadata.uid


def domain_name(pod_clique_set: str, replica: int, group: str) -> str:
    """Return the name of a set's domain as Grove forms it: `SET-REPLICA[-GROUP]`; a long name ends with a hash."""
    name = _plain_name(pod_clique_set, replica, group)
    return name if len(name) <= MAX_NAME_LENGTH else alternative_name(pod_clique_set, replica, group)


def alternative_name(pod_clique_set: str, replica: int, group: str, uid: str = "") -> str:
    """Return another name for a ComputeDomain whose normal name is too long or taken.

    `foo-0-1-x` is group `1-x` of set `foo`, and group `x` of set `foo-0`: the hash is over the separate parts. With the
    `uid` of the set, no former set of the name has it.
    """
    parts = "\0".join((pod_clique_set, str(replica), group, *([uid] if uid else [])))
    suffix = hashlib.sha256(parts.encode()).hexdigest()[:_SUFFIX_LENGTH]
    start = _plain_name(pod_clique_set, replica, group)[: MAX_NAME_LENGTH - _SUFFIX_LENGTH - 1]
    return f"{start.rstrip('-.')}-{suffix}"


def _plain_name(pod_clique_set: str, replica: int, group: str) -> str:
    return f"{pod_clique_set}-{replica}-{group}" if group else f"{pod_clique_set}-{replica}"
