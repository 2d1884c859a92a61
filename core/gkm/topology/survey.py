"""Sort the nodes of a snapshot into located nodes, nodes without GPUs, and quarantined nodes. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology import labels, quantities
from gkm.topology.label_levels import label_placements
from gkm.topology.located import locations
from gkm.topology.locations import Location
from gkm.topology.merge import Named, merged
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.uncounted import uncounted_flavors


class LocatedNode(NamedTuple):
    """A node with GPUs and its location. `gpus` are its allocatable GPUs: 0 while its device plugin is down.

    `rack` is the value of its label, "" without one.
    """

    node: Node
    location: Location
    flavor: str
    health: str
    gpus: int
    rack: str = ""


@dataclass(frozen=True, slots=True)
class TopologySurvey:
    """Every node once, by name. `bare` nodes have neither GPUs nor a fabric domain, so their labels do not matter.

    A name that several nodes have is in `quarantined` once for each of them. `quarantined_flavors` has the flavors that
    labels of quarantined nodes name.
    """

    located: tuple[LocatedNode, ...]
    bare: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]
    quarantined_flavors: Mapping[str, str] = field(default_factory=dict)
    uncounted: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Flavors of nodes whose GPUs, if they have any, are not counted (gkm.topology.uncounted)."""


def survey_nodes(
    nodes: Iterable[Node], settings: Topology, unread: Iterable[Quarantined] = (), sources: Named | None = None
) -> TopologySurvey:
    """Return the survey of nodes by the placements of `sources`, or by their labels; the order of nodes is no matter.

    `unread` are nodes that cannot be decoded. Whoever makes a tree of the same sources quarantines the same nodes.
    """
    listed, unreadable = list(nodes), list(unread)
    names = Counter(node.name for node in listed)
    names.update({entry.node for entry in unreadable})
    bare: list[str] = []
    quarantined: list[Quarantined] = unreadable
    found: dict[str, tuple[Node, labels.Claims, int]] = {}
    read = labels.reader(settings)
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
    merge = merged(
        sources or [("labels", label_placements(listed, settings))], settings, existing=names, unplaced=found
    )
    placed = locations(merge.tree, {name: claims for name, (_, claims, _) in found.items()}, settings)
    quarantined += [entry for entry in (*merge.quarantined, *placed.quarantined) if entry.node in found]
    aside = {entry.node for entry in quarantined}
    named = ((node.name, labels.named_flavor(node.labels, settings.labels.flavor)) for node in listed)
    return TopologySurvey(
        tuple(
            [
                LocatedNode(node, placed.locations[name], claims.flavor, claims.health, gpus, claims.rack)
                for name, (node, claims, gpus) in sorted(found.items())
                if name not in aside
            ]
        ),
        tuple(sorted(bare)),
        tuple(sorted(quarantined)),
        # Sorted: nodes of one name may name several flavors.
        dict(sorted((name, flavor) for name, flavor in named if flavor and name in aside)),
        uncounted=uncounted_flavors(listed, settings.labels.flavor),
    )


def _read_node(
    node: Node, read: Callable[[Mapping[str, str]], labels.Claims]
) -> tuple[labels.Claims, int] | Quarantined | None:
    """Return the labels and GPUs of a node, None for a node that no run could ever use."""
    try:
        claims = read(node.labels)
    except labels.MalformedLabel as error:
        return Quarantined(node.name, QuarantineReason.LABEL_INVALID, str(error))
    allocatable = node.gpus
    if allocatable is None:
        return (claims, 0) if claims.domain else None
    try:
        return claims, quantities.gpu_count(allocatable)
    except ValueError as error:
        return Quarantined(node.name, QuarantineReason.GPUS_INVALID, f"allocatable nvidia.com/gpu: {error}")
