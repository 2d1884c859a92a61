"""Locate nodes by their labels, and quarantine nodes whose labels contradict those of other nodes. Pure.

A job on a wrong domain hangs, so a majority decides nothing: the whole domain or rack is quarantined until a person
corrects the label. Nodes are never merged into a domain or block "unknown". Two clusters may both have a domain, block
or rack of one name; only a name that is a UUID is one domain wherever it occurs (gkm.topology.locations.DomainKey).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from gkm.topology.labels import Claims
from gkm.topology.locations import DomainKey, Location, is_world_unique

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


_Groups = dict[Claims, list[str]]
"""Names of nodes by their labels: thousands of nodes have a few hundred sets of labels."""


class _Contradiction(NamedTuple):
    """A rule: each `thing` (domain or rack) is in at most one of `others`. The functions return "" without a label."""

    why: QuarantineReason
    thing: str
    others: str
    of: Callable[[Claims], str]
    where: Callable[[Claims], str]


def resolve_locations(
    nodes: Iterable[tuple[str, Claims]], *, own_domains: bool = True
) -> tuple[Mapping[str, Location], tuple[Quarantined, ...]]:
    """Return the location of each node, and the quarantined nodes. Each node is in one of the two; names are unique.

    A node without a domain label is a domain of its own, or is quarantined without `own_domains`. The rules apply in
    order, and later ones ignore quarantined nodes: domains of a UUID in several regions, or in several clusters;
    domains in several blocks; racks in several blocks. A node without a block label is in the block of its domain; a
    domain without any block label is a block of its own.
    """
    rest: _Groups = {}
    for name, claims in nodes:
        rest.setdefault(claims, []).append(name)
    quarantined: list[Quarantined] = []
    if not own_domains:
        missing = "it has no label for its fabric domain"
        rest, quarantined = _split(
            rest, QuarantineReason.NO_FABRIC_DOMAIN, lambda claims: "" if claims.domain else missing
        )
    for kind in (_REGIONS, _CLUSTERS, _BLOCKS):
        rest, wrong = _split_conflicting(rest, kind)
        quarantined += wrong
    blocks = _blocks(rest)
    racks = _Contradiction(
        QuarantineReason.RACK_IN_SEVERAL_BLOCKS, "rack", "blocks", _rack, lambda claims: _block(claims, blocks)
    )
    rest, wrong = _split_conflicting(rest, racks)
    # Again: the quarantined nodes may be the only ones with the block label of a domain.
    blocks = _blocks(rest)
    return dict(_locations(rest, blocks)), tuple(sorted([*quarantined, *wrong]))


def _split_conflicting(rest: _Groups, kind: _Contradiction) -> tuple[_Groups, list[Quarantined]]:
    """Return the nodes that follow a rule, and the quarantined ones."""
    found: dict[str, dict[str, list[str]]] = {}
    for claims, names in rest.items():
        thing, where = kind.of(claims), kind.where(claims)
        if thing and where:
            found.setdefault(thing, {}).setdefault(where, []).extend(names)
    wrong = {
        thing: contradiction(kind.thing, kind.others, thing, locations)
        for thing, locations in found.items()
        if len(locations) > 1
    }
    return _split(rest, kind.why, lambda claims: wrong.get(kind.of(claims), "")) if wrong else (rest, [])


def _split(rest: _Groups, why: QuarantineReason, problem: Callable[[Claims], str]) -> tuple[_Groups, list[Quarantined]]:
    """Return the nodes whose labels have no problem, and the others, quarantined."""
    good = {claims: names for claims, names in rest.items() if not problem(claims)}
    wrong = ((problem(claims), names) for claims, names in rest.items() if claims not in good)
    return good, [Quarantined(name, why, message) for message, names in wrong for name in names]


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


def _domain(claims: Claims) -> str:
    return str(DomainKey.of(claims.region, claims.cluster, claims.domain)) if claims.domain else ""


def _world_unique_domain(claims: Claims) -> str:
    return claims.domain if is_world_unique(claims.domain) else ""


def _rack(claims: Claims) -> str:
    return f"{_cluster(claims)}/{claims.rack}" if claims.rack else ""


def _blocks(rest: _Groups) -> Mapping[str, str]:
    """Return the block of every domain (by its key) with a block label; its nodes agree on it."""
    return {_domain(claims): claims.block for claims in rest if claims.domain and claims.block}


def _block(claims: Claims, blocks: Mapping[str, str]) -> str:
    return claims.block or blocks.get(_domain(claims), "")


def _locations(rest: _Groups, blocks: Mapping[str, str]) -> Iterator[tuple[str, Location]]:
    for claims, names in rest.items():
        shared = _location(claims, claims.domain, blocks) if claims.domain else None
        for name in names:
            # A label value has no colon, so no label names such a domain or block.
            yield name, shared or _location(claims, f"node:{name}", blocks)


def _location(claims: Claims, domain: str, blocks: Mapping[str, str]) -> Location:
    own_block = domain if ":" in domain else f"domain:{domain}"
    return Location(claims.region, claims.cluster, _block(claims, blocks) or own_block, domain)


_REGIONS = _Contradiction(
    QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS, "domain", "regions", _world_unique_domain, attrgetter("region")
)
_CLUSTERS = _Contradiction(
    QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS, "domain", "clusters", _world_unique_domain, _cluster
)
_BLOCKS = _Contradiction(QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS, "domain", "blocks", _domain, attrgetter("block"))
