"""The reasons for putting nodes into quarantine, and the message about a contradiction. Pure.

A job on a wrong domain hangs, so a majority is no proof: the whole domain or rack is quarantined until a person
corrects the label. Nodes are never merged into a domain or block "unknown". Two clusters may both have a domain, block
or rack of one name; only a name that is a UUID is the same domain everywhere (gkm.topology.locations.DomainKey).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from gkm.api.cliques import CLIQUE_LEVEL

_MAX_LISTED = 3


class QuarantineReason(StrEnum):
    """Why a node is in quarantine, and so is not used for placement."""

    UNREADABLE = "Unreadable"
    DUPLICATE_NAME = "DuplicateName"
    LABEL_INVALID = "LabelInvalid"
    GPUS_INVALID = "GPUsInvalid"
    POD_INVALID = "PodInvalid"
    NO_FABRIC_DOMAIN = "NoFabricDomain"
    DOMAIN_IN_SEVERAL_REGIONS = "DomainInSeveralRegions"
    DOMAIN_IN_SEVERAL_CLUSTERS = "DomainInSeveralClusters"
    DOMAIN_IN_SEVERAL_BLOCKS = "DomainInSeveralBlocks"
    RACK_IN_SEVERAL_BLOCKS = "RackInSeveralBlocks"
    DOMAIN_IN_SEVERAL_DOMAINS = "DomainInSeveralDomains"
    PROVIDER_CONTRADICTORY = "ProviderContradictory"
    EQUAL_CABLES = "EqualCables"


class Quarantined(NamedTuple):
    """A node in quarantine; `message` tells a person what contradicts."""

    node: str
    why: QuarantineReason
    message: str


_BETWEEN = {
    (CLIQUE_LEVEL, "region"): QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS,
    (CLIQUE_LEVEL, "cluster"): QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS,
    (CLIQUE_LEVEL, "block"): QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS,
    ("rack", "block"): QuarantineReason.RACK_IN_SEVERAL_BLOCKS,
}


def reason_of(level: str, above: str) -> QuarantineReason:
    """Return the reason for quarantining the nodes of a domain that lies in several domains of the next level."""
    return _BETWEEN.get((level, above), QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS)


def contradiction(thing: str, others: str, name: str, locations: Mapping[str, list[str]]) -> str:
    """Return a sentence about the domains in which a domain lies at once, with the names of a few nodes for each."""
    claims = sorted(locations.items(), key=lambda item: (-len(item[1]), item[0]))
    # Show the most frequent claim and the rarest ones, which are the likely mistakes.
    shown = claims if len(claims) <= _MAX_LISTED else [claims[0], *claims[1 - _MAX_LISTED :]]
    parts = [f"{where} ({_names(names)})" for where, names in shown]
    more = f" and {len(claims) - _MAX_LISTED} more" if len(claims) > _MAX_LISTED else ""
    return f"{thing} {name} lies in {others} {', '.join(parts)}{more}: it can be in one only"


def _names(names: list[str]) -> str:
    return ", ".join(sorted(names)) if len(names) <= _MAX_LISTED else f"{len(names)} nodes"
