"""Reasons for the quarantine of nodes, and the rule for racks, which are no level of the tree. Pure.

A job on a wrong domain hangs, so a majority decides nothing: the whole domain or rack is quarantined until a person
corrects the label. Nodes are never merged into a domain or block "unknown". Two clusters may both have a domain, block
or rack of one name; only a name that is a UUID is one domain wherever it occurs (gkm.topology.locations.DomainKey).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.topology.labels import Claims
from gkm.topology.locations import DomainKey

_MAX_LISTED = 3


class QuarantineReason(StrEnum):
    """Reasons for the quarantine of a node."""

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
    """A quarantined node; `message` names the contradiction for a person."""

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
    """Return the reason for the nodes of a domain of a level that lies in several domains of the level above."""
    return _BETWEEN.get((level, above), QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS)


def racks_in_several_blocks(nodes: Iterable[tuple[str, Claims]]) -> Iterator[Quarantined]:
    """Yield the nodes of racks that lie in several blocks, by the labels of nodes whose names differ.

    A node without a block label is in the block of its domain. Nodes of a domain that lies in several places are
    quarantined with it, and say nothing about their rack.
    """
    by_claims: dict[Claims, list[str]] = {}
    for name, claims in nodes:
        by_claims.setdefault(claims, []).append(name)
    blocks = _blocks(by_claims)
    racks: dict[str, dict[str, list[str]]] = {}
    for claims, names in by_claims.items():
        if claims.rack and (block := blocks.get(_domain(claims), "") if claims.domain else claims.block):
            racks.setdefault(f"{_cluster(claims)}/{claims.rack}", {}).setdefault(block, []).extend(names)
    for rack, by_block in racks.items():
        if len(by_block) > 1:
            message = contradiction("rack", "blocks", rack, by_block)
            for name in chain(*by_block.values()):
                yield Quarantined(name, QuarantineReason.RACK_IN_SEVERAL_BLOCKS, message)


def _blocks(every: Iterable[Claims]) -> Mapping[DomainKey, str]:
    """Return the block of each domain whose labels agree on it, and on its cluster."""
    found: dict[DomainKey, set[str]] = {}
    clusters: dict[DomainKey, set[str]] = {}
    for claims in every:
        clusters.setdefault(_domain(claims), set()).add(_cluster(claims))
        if claims.block:
            found.setdefault(_domain(claims), set()).add(claims.block)
    return {key: min(blocks) for key, blocks in found.items() if len(blocks) == len(clusters[key]) == 1}


def contradiction(thing: str, others: str, name: str, locations: Mapping[str, list[str]]) -> str:
    """Return the claims about a thing with the names of few nodes: usually one label among many is wrong."""
    claims = sorted(locations.items(), key=lambda item: (-len(item[1]), item[0]))
    # Of many claims, the most frequent one and the rarest ones, which are the likely mistakes.
    shown = claims if len(claims) <= _MAX_LISTED else [claims[0], *claims[1 - _MAX_LISTED :]]
    parts = [f"{where} ({_names(names)})" for where, names in shown]
    more = f" and {len(claims) - _MAX_LISTED} more" if len(claims) > _MAX_LISTED else ""
    return f"{thing} {name} lies in {others} {', '.join(parts)}{more}: it can be in one only"


def _names(names: list[str]) -> str:
    return ", ".join(sorted(names)) if len(names) <= _MAX_LISTED else f"{len(names)} nodes"


def _cluster(claims: Claims) -> str:
    return f"{claims.region}/{claims.cluster}"


def _domain(claims: Claims) -> DomainKey:
    return DomainKey.of(claims.region, claims.cluster, claims.domain)
