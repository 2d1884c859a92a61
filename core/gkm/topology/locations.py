"""Where a domain lies, as a value that sorts; and the names of domains and blocks that no label names."""

from typing import NamedTuple


class Location(NamedTuple):
    """Where a domain lies. Its own name comes last, so that places sort by region, cluster, block and domain."""

    region: str
    cluster: str
    block: str
    domain: str

    def __str__(self) -> str:
        """Return it as people read it."""
        return "/".join(self)


def domain_of_node(node: str) -> str:
    """Return the domain of a node that is one by itself. The value of a label holds no colon: none is called so."""
    return f"node:{node}"


def block_of_domain(domain: str) -> str:
    """Return the block of a domain that is one by itself: unknown blocks are never taken for the same one."""
    return domain if ":" in domain else f"domain:{domain}"
