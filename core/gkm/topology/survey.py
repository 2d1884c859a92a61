"""All nodes of a snapshot, sorted out once: where each is, which have no GPUs, which are set aside. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology import labels, quantities
from gkm.topology.hygiene import Quarantined, Why, settle
from gkm.topology.nodes import Node
from gkm.topology.places import Place


class Located(NamedTuple):
    """A node with GPUs, and where it is. `gpus` are those that its pods may have; 0 while its device plugin is away."""

    node: Node
    place: Place
    flavor: str
    health: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Survey:
    """Every node once, by name. `bare` have neither GPUs nor a fabric domain: what their labels say matters to nobody.

    A name that several nodes have stands in `quarantined` once for each of them.
    """

    located: tuple[Located, ...]
    bare: tuple[str, ...]
    quarantined: tuple[Quarantined, ...]


def survey(nodes: Iterable[Node], settings: Topology, unread: Iterable[Quarantined] = ()) -> Survey:
    """Return what there is; `unread` are nodes that could not be read. The order of neither matters."""
    listed, unreadable = list(nodes), list(unread)
    names = Counter(node.name for node in listed)
    names.update({entry.node for entry in unreadable})
    bare: list[str] = []
    aside: list[Quarantined] = unreadable
    found: dict[str, tuple[Node, labels.Claims, int]] = {}
    read = labels.reader(settings)
    for node in listed:
        name = node.metadata.name
        if names[name] > 1:
            aside.append(Quarantined(name, Why.DUPLICATE_NAME, f"{names[name]} nodes have this name"))
            continue
        looked = _look(node, read)
        if isinstance(looked, Quarantined):
            aside.append(looked)
        elif looked is None:
            bare.append(name)
        else:
            found[name] = (node, *looked)
    said = ((name, claims) for name, (_, claims, _) in found.items())
    places, contradicting = settle(said, own_domains=settings.missing_fabric == "own")
    return Survey(
        tuple([_located(places[name], *found[name]) for name in sorted(places)]),
        tuple(sorted(bare)),
        tuple(sorted([*aside, *contradicting])),
    )


def _look(
    node: Node, read: Callable[[Mapping[str, str]], labels.Claims]
) -> tuple[labels.Claims, int] | Quarantined | None:
    """Return what a node says of itself and its GPUs, None for one that no run could ever use."""
    try:
        claims = read(node.labels)
    except labels.Malformed as error:
        return Quarantined(node.name, Why.LABEL_INVALID, str(error))
    allocatable = node.gpus
    if allocatable is None:
        return (claims, 0) if claims.domain else None
    try:
        return claims, quantities.gpus(allocatable)
    except ValueError as error:
        return Quarantined(node.name, Why.GPUS_INVALID, f"allocatable nvidia.com/gpu: {error}")


def _located(place: Place, node: Node, claims: labels.Claims, gpus: int) -> Located:
    return Located(node, place, claims.flavor, claims.health, gpus)
