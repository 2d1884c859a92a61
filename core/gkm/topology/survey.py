"""Divide the nodes of a snapshot into located nodes, nodes without GPUs, and quarantined nodes. Pure.

The planner uses region, cluster, block and domain of each node, from the tree of all sources. Levels that the tree does
not have are read from labels, and must nest with those that it has.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.api.cliques import CLIQUE_LEVEL
from gkm.api.topology_settings import PLANNED_LEVELS, Topology, TopologyDefaults
from gkm.topology.labels import Claims, MalformedLabel, label_placements, named_flavor, reader
from gkm.topology.locations import Location
from gkm.topology.nodes import Node, gpu_count
from gkm.topology.placements import Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.trees.merge import Named, build_tree
from gkm.topology.trees.tree import Domain, Tree
from gkm.topology.usage import uncounted_flavors

_IN_PLACE_OF = {"spine": "block"}
"""Levels that cables and presets name, by the level of the planner that they are where the tree has no such level."""

_Names = Mapping[str, Sequence[str]]
"""For each level of the planner, the domain's name of each node of a tree, in its order; "" without a domain."""


def locations(
    tree: Tree, claims: Mapping[str, Claims], settings: Topology
) -> tuple[Mapping[str, Location], tuple[Quarantined, ...]]:
    """Return the location of each node of the tree, and the nodes whose labels contradict the tree.

    `claims` are the topology values of their labels.
    """
    names = _names(tree, settings)
    quarantined: tuple[Quarantined, ...] = ()
    if len(names) < len(PLANNED_LEVELS):
        tree = _completed(tree, names, claims, settings)
        names, quarantined = _names(tree, Topology()), tree.quarantined
    domains, blocks, clusters, regions = (names[level] for level in PLANNED_LEVELS)
    places = zip(tree.nodes, zip(regions, clusters, blocks, domains, strict=True), strict=True)
    of_places: dict[tuple[str, ...], Location] = {}
    found: dict[str, Location] = {}
    for node, place in places:
        if node in claims:
            location = of_places.get(place) or _location(node, Location(*place), settings.defaults)
            found[node] = location
            if place[-1]:
                of_places[place] = location
    return found, quarantined


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


class LocatedNode(NamedTuple):
    """A node with GPUs and its location. `gpus` is the allocatable number, 0 while its device plugin is down.

    `rack` is the value of its label, "" if absent.
    """

    node: Node
    location: Location
    flavor: str
    health: str
    gpus: int
    rack: str = ""


@dataclass(frozen=True, slots=True)
class TopologySurvey:
    """The result of a survey of nodes; every node once, by name.

    A name that several nodes have is in `quarantined` once for each of them. `quarantined_flavors` has the flavors that
    labels of quarantined nodes name.
    """

    located: tuple[LocatedNode, ...]
    bare: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]
    quarantined_flavors: Mapping[str, str] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Flavors of nodes without allocatable GPUs, so that their GPUs are not counted (gkm.topology.usage)."""


def survey_nodes(
    nodes: Iterable[Node], settings: Topology, unread: Iterable[Quarantined] = (), sources: Named | None = None
) -> TopologySurvey:
    """Return the survey of nodes, placed by `sources` or by their labels; the order of nodes has no effect.

    `unread` are nodes that cannot be decoded. Every process that makes a tree of the same sources quarantines the same
    nodes.
    """
    listed, unreadable = list(nodes), list(unread)
    names = Counter([node.metadata.name for node in listed])
    names.update({entry.node for entry in unreadable})
    bare: list[str] = []
    quarantined: list[Quarantined] = unreadable
    found: dict[str, tuple[Node, Claims, int]] = {}
    read = reader(settings)
    for node in listed:
        name = node.metadata.name
        if names[name] > 1:
            message = f"{names[name]} nodes have this name and differ: list one of them"
            quarantined.append(Quarantined(name, QuarantineReason.DUPLICATE_NAME, message))
            continue
        result = _read_node(node, read)
        if isinstance(result, Quarantined):
            quarantined.append(result)
        elif result is None:
            bare.append(name)
        else:
            found[name] = (node, *result)
    tree = build_tree(
        sources or [("labels", label_placements(listed, settings))], settings, existing=names, unplaced=found
    )
    places, contradicting = locations(tree, {name: claims for name, (_, claims, _) in found.items()}, settings)
    quarantined += [entry for entry in (*tree.quarantined, *contradicting) if entry.node in found]
    aside = {entry.node for entry in quarantined}
    set_aside = (node for node in listed if node.metadata.name in aside)
    named = ((node.name, named_flavor(node.labels, settings.labels.flavor)) for node in set_aside)
    return TopologySurvey(
        tuple(
            [
                LocatedNode(node, places[name], claims.flavor, claims.health, gpus, claims.rack)
                for name, (node, claims, gpus) in sorted(found.items())
                if name not in aside
            ]
        ),
        tuple(sorted(bare)),
        tuple(sorted(quarantined)),
        # Sorted: nodes of one name may name several flavors.
        dict(sorted((name, flavor) for name, flavor in named if flavor)),
        uncounted=uncounted_flavors(listed, settings.labels.flavor),
    )


def _read_node(node: Node, read: Callable[[Mapping[str, str]], Claims]) -> tuple[Claims, int] | Quarantined | None:
    """Return the labels and GPUs of a node, None for a node that no run could ever use."""
    try:
        claims = read(node.labels)
    except MalformedLabel as error:
        return Quarantined(node.name, QuarantineReason.LABEL_INVALID, str(error))
    allocatable = node.gpus
    if allocatable is None:
        return (claims, 0) if claims.domain else None
    try:
        return claims, gpu_count(allocatable)
    except ValueError as error:
        return Quarantined(node.name, QuarantineReason.GPUS_INVALID, f"allocatable nvidia.com/gpu: {error}")
