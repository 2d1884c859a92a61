"""Compares the ComputeDomains that a set requires with those that exist. Pure; must never look at a domain's name.

A domain is what its labels say: a name may carry a hash, and cannot be parsed without doubt (`foo-0-1-x`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gkm.api.computedomains import ComputeDomain
from gkm.api.mnnvl_metadata import MNNVL_GROUP, REPLICA_INDEX

from gkm_operator.mnnvl.required import SetDomainKey, replica_index


@dataclass(frozen=True, slots=True)
class ExistingDomain:
    """A ComputeDomain in the cluster. One with the key None has labels that no domain of GKM has: it is excess."""

    key: SetDomainKey | None
    name: str
    uid: str
    terminating: bool = False
    created: str = ""


@dataclass(frozen=True, slots=True)
class DomainDifference:
    """The missing and the surplus domains.

    `create` lists keys without any domain, `lost` the required domains that are being deleted, `release` the domains
    that no replica and group requires. `present` has the domain of each required key, the lost ones left out.
    """

    present: Mapping[SetDomainKey, ExistingDomain]
    create: tuple[SetDomainKey, ...]
    lost: tuple[ExistingDomain, ...]
    release: tuple[ExistingDomain, ...]

    @property
    def complete(self) -> bool:
        """Return whether every required domain is present."""
        return not self.create and not self.lost


def existing(domain: ComputeDomain) -> ExistingDomain:
    """Return a domain with the key that its labels state."""
    metadata = domain.metadata
    replica = replica_index(metadata.label(REPLICA_INDEX))
    return ExistingDomain(
        None if replica is None else SetDomainKey(replica, metadata.label(MNNVL_GROUP)),
        metadata.name,
        metadata.uid,
        metadata.terminating,
        metadata.creation_timestamp,
    )


def difference(required: frozenset[SetDomainKey], domains: Iterable[ExistingDomain]) -> DomainDifference:
    """Return what to create and to release.

    Of several domains with one key, the oldest that is not terminating is present, and the others are excess: pods
    joined the oldest first. Without one, the oldest is lost, because a new domain may need its name.
    """
    first: dict[SetDomainKey, ExistingDomain] = {}
    excess: list[ExistingDomain] = []
    for domain in sorted(domains, key=_precedence):
        if domain.key is None or domain.key not in required or domain.key in first:
            excess.append(domain)
        else:
            first[domain.key] = domain
    return DomainDifference(
        present={key: domain for key, domain in first.items() if not domain.terminating},
        create=tuple(sorted(required - first.keys())),
        lost=tuple(domain for domain in first.values() if domain.terminating),
        release=tuple(excess),
    )


def _precedence(domain: ExistingDomain) -> tuple[bool, str, str]:
    """Return the order of domains with one key; times of the API server compare as text (RFC 3339, UTC, seconds)."""
    return domain.terminating, domain.created, domain.uid
