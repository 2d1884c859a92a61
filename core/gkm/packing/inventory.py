"""The nodes that a run may use, sorted and as arrays: built once and used for many plans."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gkm.packing.values import Location, Node, Share

Integers = NDArray[np.int64]

MAX_NODES = 2_000_000
MAX_NODE_GPUS = 1 << 16
"""Limit of GPUs of a node: nodes have 4 to 72 today; a larger number is a mistake, and could overflow sums."""


class InvalidInventoryError(ValueError):
    """The list of nodes is invalid; the message names the node and the reason."""


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """The nodes that a run may use, sorted by place and name, with arrays about their domains that every plan needs.

    `free` has one number per node, in GPUs. `starts` has the index of the first node of each domain and, last, the
    number of nodes; `blocks`, `clusters` and `regions` the number of each domain's block, cluster and region, which
    count from 0 in the order of places; `racks` the rack that all nodes of a domain are in, "" without a common rack.
    `domain_of` has the number of each node's domain, `domains` the number of each domain by its place, `numbers` the
    index of each node by its name.
    """

    nodes: tuple[Node, ...]
    free: Integers
    places: tuple[Location, ...]
    starts: Integers
    blocks: Integers
    clusters: Integers
    regions: Integers
    racks: tuple[str, ...]
    numbers: Mapping[str, int]
    domains: Mapping[Location, int]
    domain_of: Integers

    @classmethod
    def from_nodes(cls, nodes: Iterable[Node]) -> "Inventory":
        """Return the inventory of some nodes, in any order.

        Raises:
            InvalidInventoryError: two nodes have one name, a number of GPUs is impossible, or there are too many nodes.
        """
        ordered = tuple(sorted(nodes, key=lambda node: (node.place, node.name)))
        _check(ordered)
        starts = [0] if ordered else []
        starts += [number for number, (one, two) in enumerate(pairwise(ordered), 1) if one.place != two.place]
        places = tuple(ordered[start].place for start in starts)
        bounds = np.array([*starts, len(ordered)], dtype=np.int64)
        return cls(
            ordered,
            np.array([node.free for node in ordered], dtype=np.int64),
            places,
            bounds,
            _areas(places, 3),
            _areas(places, 2),
            _areas(places, 1),
            tuple([_rack(ordered[start:end]) for start, end in pairwise(bounds.tolist())]),
            {node.name: number for number, node in enumerate(ordered)},
            {place: number for number, place in enumerate(places)},
            np.repeat(np.arange(len(places)), np.diff(bounds)),
        )

    def taking(self, shares: Iterable[Share]) -> "Inventory":
        """Return the inventory after these GPUs are taken from its nodes; faster than building it again.

        Raises:
            InvalidInventoryError: a node is not here, or has fewer GPUs free than are taken.
        """
        nodes, free = list(self.nodes), self.free.copy()
        for name, gpus in shares:
            if name not in self.numbers:
                raise InvalidInventoryError(f"node {name!r} is not in the inventory: its GPUs cannot be taken")
            number = self.numbers[name]
            node = nodes[number]
            if not 0 <= gpus <= node.free:
                raise InvalidInventoryError(f"node {name!r} has {node.free} GPUs free: {gpus} cannot be taken from it")
            nodes[number] = replace(node, free=node.free - gpus)
            free[number] -= gpus
        return replace(self, nodes=tuple(nodes), free=free)

    def areas(self, level: str) -> Integers:
        """Return the area number of each domain at a level, -1 if it has no area there."""
        if level == "domain":
            return np.arange(len(self.places))
        if level == "rack":
            return self._common_racks()
        return {"block": self.blocks, "cluster": self.clusters, "region": self.regions}[level]

    def _common_racks(self) -> Integers:
        numbers: dict[tuple[str, ...], int] = {}
        found = [
            numbers.setdefault((*place[:2], rack), len(numbers)) if rack else -1
            for place, rack in zip(self.places, self.racks, strict=True)
        ]
        return np.array(found, dtype=np.int64)

    def in_domain(self, domain: int) -> range:
        """Return the indices in the inventory of the nodes in a domain."""
        return range(int(self.starts[domain]), int(self.starts[domain + 1]))


def _areas(places: tuple[Location, ...], depth: int) -> Integers:
    """Return the number of each place's area, which shares the first `depth` names of the place."""
    changes = [one[:depth] != two[:depth] for one, two in pairwise(places)]
    return np.cumsum([0, *changes], dtype=np.int64)[: len(places)]


def _rack(nodes: Sequence[Node]) -> str:
    racks = {node.rack for node in nodes}
    return racks.pop() if len(racks) == 1 else ""


def _check(nodes: tuple[Node, ...]) -> None:
    if len(nodes) > MAX_NODES:
        raise InvalidInventoryError(f"{len(nodes)} nodes are more than the {MAX_NODES} that can be planned with")
    names: set[str] = set()
    for node in nodes:
        if node.name in names:
            raise InvalidInventoryError(f"two nodes are called {node.name!r}: list every node once")
        names.add(node.name)
        # bool is an int to Python, and comparisons with NaN are false: only whole numbers are let in.
        if type(node.free) is not int or type(node.total) is not int:
            raise InvalidInventoryError(
                f"node {node.name!r} has {node.free!r} of {node.total!r} GPUs: not whole numbers"
            )
        if not 0 <= node.free <= node.total <= MAX_NODE_GPUS:
            raise InvalidInventoryError(
                f"node {node.name!r} has {node.free} free GPUs of {node.total}: 0 to its total are possible, "
                f"and at most {MAX_NODE_GPUS}"
            )
