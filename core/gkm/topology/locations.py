"""The location of a fabric domain, and the key that identifies it."""

import re
from typing import NamedTuple

# RFC 4122, section 3, which reads both cases; a clique of an NVLink cluster is <uuid>.<number>.
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.[0-9]{1,10})?", re.ASCII | re.IGNORECASE)

_UUID_LENGTH = 36


class DomainKey(NamedTuple):
    """The identity of a fabric domain. Region and cluster are empty if the name alone is globally unique."""

    region: str
    cluster: str
    domain: str

    @classmethod
    def of(cls, region: str, cluster: str, domain: str) -> "DomainKey":
        """Return the key of a domain: its UUID alone if it has one, otherwise with region and cluster."""
        return cls("", "", domain) if is_world_unique(domain) else cls(region, cluster, domain)

    def __str__(self) -> str:
        """Return the parts of the key joined by slashes."""
        return f"{self.region}/{self.cluster}/{self.domain}" if self.region else self.domain


class Location(NamedTuple):
    """The location of a fabric domain, which sorts by region, cluster, block and domain."""

    region: str
    cluster: str
    block: str
    domain: str

    def __str__(self) -> str:
        """Return the four names of the location joined by slashes."""
        return "/".join(self)

    @property
    def key(self) -> DomainKey:
        """Return the identity of the domain, which does not depend on its block."""
        return DomainKey.of(self.region, self.cluster, self.domain)


def is_world_unique(name: str) -> bool:
    """Return whether a domain name is globally unique: it is a UUID, or a clique of a cluster UUID."""
    # Lengths are compared first, since this is asked several times for each of thousands of domains.
    return len(name) >= _UUID_LENGTH and _UUID.fullmatch(name) is not None
