"""Which nodes, wholly freed, would make a run fit: the fewest where that can be had (calculus.md)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np

from gkm.packing.domains.capacity import capacity
from gkm.packing.domains.options import Shape, shape
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.refusals.feasible import apart, feasible
from gkm.packing.refusals.freeing_pools import Pool, fewest, pools
from gkm.packing.values import Request

MAX_TRIES = 400
"""Sets of nodes that are tried one after another where counting does not tell the fewest."""

MAX_DROPS = 48


@dataclass(frozen=True, slots=True)
class Freed:
    """Nodes to free, by their numbers in the inventory. `fewest` says that no fewer would do."""

    nodes: tuple[int, ...]
    fewest: bool


def to_free(inventory: Inventory, request: Request) -> Freed | None:
    """Return the nodes to free, None where freeing all would not do. The run is of one size, and does not fit.

    A node is freed wholly: all its GPUs are free then.

    Raises:
        TooLargeError: nodes are in several of the run's scopes, and there is too much to try.
    """
    offer = capacity(inventory, request)
    totals = np.array([node.total for node in inventory.nodes], dtype=np.int64)
    gains = np.where(offer.node_kinds >= 0, totals // request.pod_gpus - offer.node_slots, 0)
    search = _Search(inventory, request, totals)
    useful = np.flatnonzero(gains)
    if not len(useful) or not search.does(useful.tolist()):
        return None
    # Those that give most come first; of equals those of one domain together.
    order = useful[np.argsort(-gains[useful], kind="stable")].tolist()
    if not apart(offer):
        return search.some(order)
    some = pools(offer, request, gains)
    relaxed = _relaxed(some, request)
    if relaxed is not None and search.does(relaxed):
        return Freed(tuple(sorted(relaxed)), fewest=True)
    return _otherwise(search, some, relaxed or [], order)


def _otherwise(search: "_Search", some: Sequence[Pool], relaxed: list[int], order: list[int]) -> Freed:
    """Return nodes where those that the groups alone need leave too few slots to spares, or are not known."""
    size = shape(search.request)
    known = set(relaxed)
    found = search.some([*relaxed, *(number for number in order if number not in known)])
    if not search.request.may_spread:
        return found
    most_slots = search.first(order)
    if len(most_slots) < len(found.nodes):
        found = Freed(tuple(sorted(most_slots)), fewest=False)
    wanted = search.request.groups * (size.pods + size.spares) - size.missing
    if found.fewest or len(found.nodes) == _fewest_slots(some, wanted):
        return replace(found, fewest=True)
    exact = fewest(some, search.request, size, len(found.nodes))
    return found if exact is None else Freed(tuple(sorted(exact)), fewest=True)


@dataclass(frozen=True, slots=True)
class _Search:
    inventory: Inventory
    request: Request
    totals: Integers

    def does(self, nodes: Sequence[int]) -> bool:
        """Return whether the run fits once these are free."""
        free = self.inventory.free.copy()
        free[nodes] = self.totals[nodes]
        return feasible(capacity(replace(self.inventory, free=free), self.request), self.request)

    def first(self, order: list[int]) -> list[int]:
        """Return the fewest of the first ones that do. All of them together must."""
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if self.does(order[:middle]):
                high = middle
            else:
                low = middle + 1
        return order[:low]

    def some(self, order: list[int]) -> Freed:
        """Return nodes that do, without those that are not needed; the fewest where few sets have to be tried."""
        found = self.first(order)
        for number in found[:MAX_DROPS]:
            fewer = [other for other in found if other != number]
            if fewer and self.does(fewer):
                found = fewer
        if not _few(len(order), len(found)):
            return Freed(tuple(sorted(found)), fewest=False)
        for size in range(1, len(found)):
            for nodes in combinations(sorted(order), size):
                if self.does(list(nodes)):
                    return Freed(nodes, fewest=True)
        return Freed(tuple(sorted(found)), fewest=True)


def _few(nodes: int, found: int) -> bool:
    """Return whether all sets of fewer nodes than were found can be tried."""
    left = MAX_TRIES
    for size in range(1, found):
        left -= comb(nodes, size)
        if left < 0:
            return False
    return True


def _relaxed(some: Sequence[Pool], request: Request) -> list[int] | None:
    """Return the fewest nodes if spares outside a group's domain needed no slots; None where that is too large."""
    size = shape(request)
    if request.may_spread:
        return fewest(some, request, size, 0)
    # All spares stay in the one domain: a group with its spares is like a larger group.
    one = Shape(size.pods + size.spares, 0, size.missing)
    best: list[int] | None = None
    for alone in _alone(some):
        needed = _fewest_slots(alone, request.groups * one.pods - one.missing)
        if needed is not None and (best is None or needed < len(best)):
            found = fewest(alone, request, one, 0)
            if found is not None and (best is None or len(found) < len(best)):
                best = found
    return best


def _alone(some: Sequence[Pool]) -> Iterator[list[Pool]]:
    """Yield each domain alone, with a pool for each scope that has nodes there."""
    found: dict[int, list[Pool]] = {}
    for pool in some:
        for row in pool.rows:
            found.setdefault(row.domain, []).append(Pool(pool.given, (row,)))
    for domain in sorted(found):
        yield found[domain]


def _fewest_slots(some: Sequence[Pool], pods: int) -> int | None:
    """Return how many nodes of any pool give so many slots, None if all do not: no fewer can be enough."""
    slots = sum(pool.slots for pool in some)
    gains = sorted((gain for pool in some for row in pool.rows for gain in row.gains), reverse=True)
    for nodes, gain in enumerate((0, *gains)):
        slots += gain
        if slots >= pods:
            return nodes
    return None
