"""The locations that the planner uses: region, cluster, block and domain of each node, from the tree of all sources.

Levels that the tree does not have are read from labels, and must nest with those that it has. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.topology_settings import PLANNED_LEVELS, Topology, TopologyDefaults
from gkm.topology.labels import Claims
from gkm.topology.locations import Location
from gkm.topology.merge import build_tree
from gkm.topology.placements import Placements
from gkm.topology.quarantine import Quarantined
from gkm.topology.tree import Domain, Tree

_IN_PLACE_OF = {"spine": "block"}
"""Levels that cables and presets name, by the level of the planner that they are where the tree has no such level."""

_Names = Mapping[str, Sequence[str]]
"""For each level of the planner the name of the domain of each node of a tree, in its order, and "" for none."""


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations of the nodes of a tree, and the nodes whose labels contradict it."""

    locations: Mapping[str, Location]
    quarantined: tuple[Quarantined, ...] = ()


def locations(tree: Tree, claims: Mapping[str, Claims], settings: Topology) -> Locations:
    """Return the locations of the nodes that have `claims`: what their labels say."""
    names = _names(tree, settings)
    quarantined: tuple[Quarantined, ...] = ()
    if len(names) < len(PLANNED_LEVELS):
        tree = _completed(tree, names, claims, settings)
        names, quarantined = _names(tree, Topology()), tree.quarantined
    domains, blocks, clusters, regions = (names[level] for level in PLANNED_LEVELS)
    found = {
        node: _location(node, Location(region, cluster, block, domain), settings.defaults)
        for node, region, cluster, block, domain in zip(tree.nodes, regions, clusters, blocks, domains, strict=True)
        if node in claims
    }
    return Locations(found, quarantined)


def _names(tree: Tree, settings: Topology) -> _Names:
    scoped = {level.name for level in settings.levels if level.unique == "parent"}
    found: dict[str, list[str]] = {}
    for level, domains in zip(tree.levels, tree.domains, strict=True):
        wanted = _IN_PLACE_OF.get(level, level)
        if wanted in PLANNED_LEVELS and (wanted == level or wanted not in tree.levels):
            names = found[wanted] = []
            for domain in domains:
                names += [_name(domain, is_scoped=level in scoped)] * (domain.end - domain.first)
    return found


def _name(domain: Domain, *, is_scoped: bool) -> str:
    return "" if domain.own else domain.identity if is_scoped else domain.name


def _completed(tree: Tree, names: _Names, claims: Mapping[str, Claims], settings: Topology) -> Tree:
    """Return the tree of the planner's levels, of which labels give those that `names` lacks."""
    places = {
        node: tuple([names[level][at] if level in names else _of(claims[node], level) for level in PLANNED_LEVELS])
        for at, node in enumerate(tree.nodes)
        if node in claims
    }
    planned = Topology(missing_fabric=settings.missing_fabric)
    return build_tree([("labels", Placements(places))], planned, existing=places, unplaced=places)


def _of(claims: Claims, level: str) -> str:
    found: str = claims.domain if level == CLIQUE_LEVEL else getattr(claims, level)
    return found


def _location(node: str, named: Location, defaults: TopologyDefaults) -> Location:
    """Return the location of a node in domains that may have no names."""
    # A label value has no colon, so no label names such a domain or block.
    own = f"domain:{named.domain}" if named.domain else f"node:{node}"
    return Location(
        named.region or defaults.region, named.cluster or defaults.cluster, named.block or own, named.domain or own
    )
