"""All nodes of a snapshot, sorted out once: where each is, which have no GPUs, which are set aside. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology import labels, quantities
from gkm.topology.locations import Location
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason, resolve_locations


class LocatedNode(NamedTuple):
    """A node with GPUs, and where it is. `gpus` are those that its pods may have; 0 while its device plugin is away."""

    node: Node
    location: Location
    flavor: str
    health: str
    gpus: int


@dataclass(frozen=True, slots=True)
class TopologySurvey:
    """Every node once, by name. `bare` have neither GPUs nor a fabric domain: what their labels say matters to nobody.

    A name that several nodes have stands in `quarantined` once for each of them.
    """

    located: tuple[LocatedNode, ...]
    bare: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]


def survey_nodes(nodes: Iterable[Node], settings: Topology, unread: Iterable[Quarantined] = ()) -> TopologySurvey:
    """Return what there is; `unread` are nodes that could not be read. The order of neither matters."""
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
            quarantined.append(
                Quarantined(name, QuarantineReason.DUPLICATE_NAME, f"{names[name]} nodes have this name")
            )
            continue
        result = _read_node(node, read)
        if isinstance(result, Quarantined):
            quarantined.append(result)
        elif result is None:
            bare.append(name)
        else:
            found[name] = (node, *result)
    named_claims = ((name, claims) for name, (_, claims, _) in found.items())
    places, contradicting = resolve_locations(named_claims, own_domains=settings.missing_fabric == "own")
    return TopologySurvey(
        tuple([_located(places[name], *found[name]) for name in sorted(places)]),
        tuple(sorted(bare)),
        tuple(sorted([*quarantined, *contradicting])),
    )


def _read_node(
    node: Node, read: Callable[[Mapping[str, str]], labels.Claims]
) -> tuple[labels.Claims, int] | Quarantined | None:
    """Return what a node says of itself and its GPUs, None for one that no run could ever use."""
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


def _located(location: Location, node: Node, claims: labels.Claims, gpus: int) -> LocatedNode:
    return LocatedNode(node, location, claims.flavor, claims.health, gpus)
