"""Compute fragmentation: the free GPUs that an expected mix of groups cannot use, now or after a plan. Pure.

FGD ("Beware of Fragmentation", USENIX ATC 2023) measures the GPUs of a node. GKM measures the slots of a domain,
because a group lies in one domain (docs/reference/calculus.md, Fragmentation).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gkm.api.topology_settings import MixGroup
from gkm.packing.inventory import Integers, Inventory
from gkm.packing.values import Plan

DECIMALS = 3
_SCALE = 10**DECIMALS


class Row(NamedTuple):
    """The figures of fragmentation of one region, cluster, block or domain, in GPUs.

    `place` are its names from the widest level down. All in GPUs. `largest_group` is the largest group of its best
    domain.
    """

    place: tuple[str, ...]
    free_gpus: int
    expected_unusable_gpus: float
    largest_group: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The figures of fragmentation of all nodes together, and of every place in the order of places. All in GPUs.

    `expected_unusable_gpus` is the number that a group of the mix, drawn by weight, could not use even if it came again
    and again: exact, then rounded to DECIMALS, halves up. `largest_group` is the largest that fits in one domain, in
    pods of the kind that has most slots; the sizes of the kinds do not limit it.
    """

    expected_unusable_gpus: float
    free_gpus: int
    largest_group: int
    regions: tuple[Row, ...]
    clusters: tuple[Row, ...]
    blocks: tuple[Row, ...]
    domains: tuple[Row, ...]


class _Sums(NamedTuple):
    """By place: free GPUs, unusable GPUs times weight, summed over kinds, and the largest group."""

    free: Integers
    unusable: Integers
    largest: Integers

    def merged(self, starts: Integers) -> "_Sums":
        """Return the sums of runs of places, given the first place of each."""
        free, unusable = np.add.reduceat(self.free, starts), np.add.reduceat(self.unusable, starts)
        return _Sums(free, unusable, np.maximum.reduceat(self.largest, starts))


def fragmentation(inventory: Inventory, mix: Sequence[MixGroup], plan: Plan | None = None) -> Fragmentation:
    """Return the fragmentation of an inventory; with a `plan`, after its groups and spares have taken their GPUs.

    A mix has one kind of groups at least. An inventory without nodes has no rows.

    Raises:
        InvalidInventoryError: the plan uses GPUs that the inventory lacks, so it was made for another inventory.
    """
    left = inventory if plan is None else inventory.taking(share for group in plan.groups for share in group.shares)
    if not left.nodes:
        return Fragmentation(0.0, 0, 0, (), (), (), ())
    weight = sum(kind.weight for kind in mix)
    sums = _by_domain(left, mix)
    places: list[tuple[str, ...]] = list(left.places)
    levels = [_rows(places, sums, weight)]
    for names in (3, 2, 1):
        starts = _starts(places, names)
        places, sums = [places[start][:names] for start in starts], sums.merged(np.array(starts, dtype=np.int64))
        levels.append(_rows(places, sums, weight))
    domains, blocks, clusters, regions = levels
    unusable = _rounded(sums.unusable.sum(keepdims=True), weight)[0]
    return Fragmentation(unusable, int(sums.free.sum()), int(sums.largest.max()), regions, clusters, blocks, domains)


def _by_domain(inventory: Inventory, kinds: Sequence[MixGroup]) -> _Sums:
    starts = inventory.starts[:-1]
    free = np.add.reduceat(inventory.free, starts)
    slots = {pod: np.add.reduceat(inventory.free // pod, starts) for pod in {kind.gpus_per_pod for kind in kinds}}
    unusable = np.zeros_like(free)
    for kind in kinds:
        groups = slots[kind.gpus_per_pod] * kind.gpus_per_pod // kind.gpus
        unusable += kind.weight * (free - groups * kind.gpus)
    return _Sums(free, unusable, np.max([pod * count for pod, count in slots.items()], axis=0))


def _starts(places: Sequence[tuple[str, ...]], names: int) -> list[int]:
    """Return where a new place begins, counting so many names; places are sorted."""
    return [at for at, place in enumerate(places) if not at or place[:names] != places[at - 1][:names]]


def _rows(places: Sequence[tuple[str, ...]], sums: _Sums, weight: int) -> tuple[Row, ...]:
    columns = sums.free.tolist(), _rounded(sums.unusable, weight), sums.largest.tolist()
    return tuple(map(Row, places, *columns))


def _rounded(sums: Integers, weight: int) -> list[float]:
    """Return sums by weight, to so many decimals: in integers until the last division, so that no machine differs."""
    whole, rest = sums // weight, sums % weight
    parts = (2 * _SCALE * rest + weight) // (2 * weight)
    rounded: list[float] = ((whole * _SCALE + parts) / _SCALE).tolist()
    return rounded
