"""Locations of fabric domains."""

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
