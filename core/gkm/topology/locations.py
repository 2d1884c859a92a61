"""Locations of fabric domains, and the names of domains and blocks that no label names."""

from typing import NamedTuple


class Location(NamedTuple):
    """The location of a fabric domain, which sorts by region, cluster, block and domain."""

    region: str
    cluster: str
    block: str
    domain: str

    def __str__(self) -> str:
        """Return the four names, joined by slashes."""
        return "/".join(self)


def domain_of_node(node: str) -> str:
    """Return the domain of a node without a domain label. A label value has no colon, so no label names it."""
    return f"node:{node}"


def block_of_domain(domain: str) -> str:
    """Return the block of a domain without a block label: each such domain is a block of its own."""
    return domain if ":" in domain else f"domain:{domain}"
