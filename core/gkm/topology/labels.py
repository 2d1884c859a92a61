"""Read the topology labels of nodes; the provider `labels` places nodes by them. Pure.

GKM uses the first configured key that the node has. Places are by the labels that are configured for each level, of any
accelerator.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from gkm.api import node_labels
from gkm.api.cliques import CLIQUE_LABEL, CLIQUE_LEVEL, names_clique
from gkm.api.topology_presets import NO_TOPOLOGY
from gkm.api.topology_settings import Topology, TopologyLabels
from gkm.topology.locations import DomainKey
from gkm.topology.nodes import Node
from gkm.topology.placements import Place, Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason, contradiction


class MalformedLabel(ValueError):
    """A topology label has an invalid value; the message has the key and the value."""


class Claims(NamedTuple):
    """The topology values of one node's labels, "" for a missing label. The flavor is in lower case."""

    region: str
    cluster: str
    domain: str
    block: str
    rack: str
    flavor: str
    health: str


def read(labels: Mapping[str, str], settings: Topology) -> Claims:
    """Return the topology values of a node's labels; region and cluster have configured defaults.

    Raises:
        MalformedLabel: a value that counts violates the syntax of labels.
    """
    keys = settings.labels
    return Claims(
        region=first_value(labels, keys.region) or settings.defaults.region,
        cluster=first_value(labels, keys.cluster) or settings.defaults.cluster,
        domain=first_clique(labels, keys.domain),
        block=first_value(labels, keys.block),
        rack=first_value(labels, keys.rack),
        # The agent writes nvidia-h100-80gb-hbm3, NVIDIA's feature discovery NVIDIA-H100-80GB-HBM3.
        flavor=flavor(first_value(labels, keys.flavor)),
        health=first_value(labels, keys.health),
    )


def reader(settings: Topology) -> Callable[[Mapping[str, str]], Claims]:
    """Return a cached version of `read` for these settings: thousands of nodes have a few hundred sets of labels.

    The function raises MalformedLabel as `read` does. Its cache is unbounded, so use it for the nodes of one snapshot.
    """
    keys = _label_keys(settings.labels)
    cache: dict[tuple[str | None, ...], Claims] = {}

    def cached(labels: Mapping[str, str]) -> Claims:
        values = tuple(map(labels.get, keys))
        claims = cache.get(values)
        if claims is None:
            claims = cache[values] = read(labels, settings)
        return claims

    return cached


def flavor(value: str) -> str:
    """Return a GPU flavor in the spelling that is used for comparisons: lower case."""
    return value.lower()


def named_flavor(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the GPU flavor in the first non-empty label of `keys`; "" if no label has one."""
    return next((flavor(value) for key in keys if (value := labels.get(key))), "")


def relevant_labels(labels: Mapping[str, str], keys: TopologyLabels) -> dict[str, str]:
    """Return the topology labels of a node, for a message to a person who looks for a wrong label."""
    return {key: labels[key] for key in _label_keys(keys) if key in labels}


def _label_keys(keys: TopologyLabels) -> tuple[str, ...]:
    return (*keys.region, *keys.cluster, *keys.domain, *keys.block, *keys.rack, *keys.flavor, *keys.health)


def first_value(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the first value in the labels `keys` that is not empty and no placeholder; "" if absent.

    Raises:
        MalformedLabel: that value violates the syntax of labels.
    """
    return next(_values(labels, keys), "")


def first_clique(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the first value in the labels `keys` that names an NVLink clique, "" if absent (gkm.api.cliques).

    Raises:
        MalformedLabel: that value, or one before it, violates the syntax of labels.
    """
    return next(filter(names_clique, _values(labels, keys)), "")


def _values(labels: Mapping[str, str], keys: Sequence[str]) -> Iterator[str]:
    for key in keys:
        value = labels.get(key)
        if value and value != NO_TOPOLOGY:  # Kubernetes allows empty values
            if not _is_label_value(value):  # lists may come from files, which no API server has validated
                raise MalformedLabel(f"label {key} is {value[:63]!a}, which is no value of a label")
            yield value


@lru_cache(maxsize=1 << 16)  # few values, each on many nodes
def _is_label_value(value: str) -> bool:
    return node_labels.NAME.fullmatch(value) is not None


def known_keys(settings: Topology) -> Mapping[str, Sequence[str]]:
    """Return the label keys, by name of a level, for the levels that have known keys."""
    known = settings.labels
    keys = {CLIQUE_LEVEL: known.domain, "rack": known.rack, "block": known.block}
    return {**settings.preset_keys.levels, **keys, "cluster": known.cluster, "region": known.region}


def level_keys(settings: Topology) -> tuple[Sequence[str], ...]:
    """Return the label keys of each configured level, in the order of levels."""
    known = known_keys(settings)
    return tuple(level.keys or known.get(level.name, []) for level in settings.levels)


def is_of_cliques(level: str, keys: Sequence[str], settings: Topology) -> bool:
    """Return whether the domains of a level are NVLink cliques, by its name or its label keys."""
    return level == CLIQUE_LEVEL or not {CLIQUE_LABEL, *settings.labels.domain}.isdisjoint(keys)


class LabelPlaces:
    """Reads the topology domains of a node from its labels; a cache has the domains for equal labels.

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
        """Return the place of a node, or why it is quarantined; None for a node without GPUs and without domains."""
        found = node.labels
        values = tuple(map(found.get, self._keys))
        place = self._cache.get(values)
        if place is None:
            try:
                place = self._cache[values] = self._read(found)
            except MalformedLabel as error:
                return Quarantined(node.name, QuarantineReason.LABEL_INVALID, str(error))
        if node.gpus is None and not any(place[position] for position in self._below_cluster):
            return None
        return place

    def _read(self, found: Mapping[str, str]) -> Place:
        return tuple([first(found, keys) or default for first, keys, default in self._levels])


def _first_of(level: str, keys: Sequence[str], settings: Topology) -> Callable[[Mapping[str, str], Sequence[str]], str]:
    return first_clique if is_of_cliques(level, keys, settings) else first_value


def label_placements(nodes: Iterable[Node], settings: Topology) -> Placements:
    """Return the places of all nodes by their labels; nodes without GPUs and domains get none.

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
    return _racks_in_several_blocks(_with_claims(nodes, settings, repeated))


def _with_claims(nodes: Iterable[Node], settings: Topology, repeated: Container[str]) -> Iterator[tuple[str, Claims]]:
    read = reader(settings)
    for node in nodes:
        if node.name in repeated:
            continue
        try:
            claims = read(node.labels)
        except MalformedLabel:
            continue
        if node.gpus is not None or claims.domain:
            yield node.name, claims


def _racks_in_several_blocks(nodes: Iterable[tuple[str, Claims]]) -> Iterator[Quarantined]:
    """Yield the nodes of racks that lie in several blocks, by the labels of nodes whose names differ.

    A node without a block label is in the block of its domain. Nodes of a domain that lies in several places are
    quarantined with it, and are not used as evidence about their rack.
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


def _cluster(claims: Claims) -> str:
    return f"{claims.region}/{claims.cluster}"


def _domain(claims: Claims) -> DomainKey:
    return DomainKey.of(claims.region, claims.cluster, claims.domain)
