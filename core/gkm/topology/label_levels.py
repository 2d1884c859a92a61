"""The provider `labels`: places of nodes by the labels that are configured for each level, of any accelerator. Pure."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from gkm.api.cliques import CLIQUE_LABEL, CLIQUE_LEVEL
from gkm.api.topology_settings import Topology
from gkm.topology import labels
from gkm.topology.nodes import Node
from gkm.topology.placements import Place, Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason, racks_in_several_blocks


def known_keys(settings: Topology) -> Mapping[str, Sequence[str]]:
    """Return the keys of levels that need none of their own."""
    known = settings.labels
    keys = {CLIQUE_LEVEL: known.domain, "rack": known.rack, "block": known.block}
    return {**settings.preset_keys.levels, **keys, "cluster": known.cluster, "region": known.region}


def level_keys(settings: Topology) -> tuple[Sequence[str], ...]:
    """Return the keys of the labels for each configured level."""
    known = known_keys(settings)
    return tuple(level.keys or known.get(level.name, []) for level in settings.levels)


def is_of_cliques(level: str, keys: Sequence[str], settings: Topology) -> bool:
    """Return whether the domains of a level are NVLink cliques: by its name, or by a key that names them."""
    return level == CLIQUE_LEVEL or not {CLIQUE_LABEL, *settings.labels.domain}.isdisjoint(keys)


class LabelPlaces:
    """Reads the place of a node from its labels; a cache holds the places of equal labels.

    The cache is unbounded, so use it for the nodes of one cluster and start anew with each list of them.
    """

    def __init__(self, settings: Topology) -> None:
        defaults = {"cluster": settings.defaults.cluster, "region": settings.defaults.region}
        self._levels = [
            (_first_of(level.name, keys, settings), keys, defaults.get(level.name, ""))
            for level, keys in zip(settings.levels, level_keys(settings), strict=True)
        ]
        self._below_cluster = [position for position, level in enumerate(settings.levels) if level.name not in defaults]
        self._keys = tuple({key: None for _, keys, _ in self._levels for key in keys})
        self._cache: dict[tuple[str | None, ...], Place] = {}

    def of(self, node: Node) -> Place | Quarantined | None:
        """Return the place, or why the node is quarantined; None without GPUs and without a domain below `cluster`."""
        found = node.labels
        values = tuple(map(found.get, self._keys))
        place = self._cache.get(values)
        if place is None:
            try:
                place = self._cache[values] = self._read(found)
            except labels.MalformedLabel as error:
                return Quarantined(node.name, QuarantineReason.LABEL_INVALID, str(error))
        if node.gpus is None and not any(place[position] for position in self._below_cluster):
            return None
        return place

    def _read(self, found: Mapping[str, str]) -> Place:
        return tuple([first(found, keys) or default for first, keys, default in self._levels])


def _first_of(level: str, keys: Sequence[str], settings: Topology) -> Callable[[Mapping[str, str], Sequence[str]], str]:
    return labels.first_clique if is_of_cliques(level, keys, settings) else labels.first_value


def label_placements(nodes: Iterable[Node], settings: Topology) -> Placements:
    """Return the places of nodes by their labels. Nodes without GPUs and domains have none, and are not quarantined.

    All nodes of one name are quarantined, as are nodes with a value that no label can have.
    """
    listed = list(nodes)
    reader = LabelPlaces(settings)
    repeated = {name for name, count in Counter(node.name for node in listed).items() if count > 1}
    duplicate = "several nodes have this name and differ: list one of them"
    quarantined = [Quarantined(name, QuarantineReason.DUPLICATE_NAME, duplicate) for name in repeated]
    places: dict[str, Place] = {}
    for node in listed:
        if node.name in repeated:
            continue
        found = reader.of(node)
        if isinstance(found, Quarantined):
            quarantined.append(found)
        elif found is not None:
            places[node.name] = found
    quarantined += _racks(listed, settings, repeated)
    for entry in quarantined:
        places.pop(entry.node, None)
    return Placements(places, tuple(sorted(quarantined)))


def _racks(nodes: Iterable[Node], settings: Topology, repeated: Container[str]) -> Iterator[Quarantined]:
    """Yield the nodes of racks that contradict each other, where racks are no level of the tree, which would see it.

    Labels of nodes without GPUs and domains do not matter.
    """
    if not settings.labels.rack or any(level.name == "rack" for level in settings.levels):
        return iter(())
    return racks_in_several_blocks(_with_claims(nodes, settings, repeated))


def _with_claims(
    nodes: Iterable[Node], settings: Topology, repeated: Container[str]
) -> Iterator[tuple[str, labels.Claims]]:
    read = labels.reader(settings)
    for node in nodes:
        if node.name in repeated:
            continue
        try:
            claims = read(node.labels)
        except labels.MalformedLabel:
            continue
        if node.gpus is not None or claims.domain:
            yield node.name, claims
