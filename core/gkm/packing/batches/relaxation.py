"""The batch without its geometry: GPUs by run, and rows that every batch keeps. What it cannot reach, no batch can."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gkm.packing.batches.demand import Demand, demand
from gkm.packing.batches.ground import Ground
from gkm.packing.batches.rows import Row, Site, rows
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.inventory import Inventory

_MAX_SITES = 16


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Runs have the numbers of the ground. `levels` has the runs of each priority that fit alone, the highest first."""

    demands: tuple[Demand, ...]
    rows: tuple[Row, ...]
    priorities: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Proven:
    """The most GPUs that a level can have; and the GPUs and the runs, of all levels, of the best that is known."""

    bound: int
    gpus: int
    chosen: frozenset[int]
    cut_short: bool = False


def relaxation(ground: Ground) -> Relaxation:
    """Return the relaxation of a batch.

    Raises:
        TooLargeError: a run and its inventory are together too large to be solved exactly.
    """
    whole = _whole(ground)
    demands: list[Demand] = []
    masks: list[NDArray[np.bool_]] = []
    for run, use in zip(ground.runs, ground.uses, strict=True):
        offer = capacity(ground.inventories[use], run.request)
        demands.append(demand(offer, run.request))
        masks.append(_mask(whole, offer))
    priorities = tuple(sorted({run.priority for run in ground.runs}, reverse=True))
    levels = tuple(
        tuple(number for number, run in enumerate(ground.runs) if run.priority == priority and demands[number].gpus)
        for priority in priorities
    )
    pods = [run.request.pod_gpus for run in ground.runs]
    return Relaxation(tuple(demands), rows(_sites(whole, masks), demands, pods), priorities, levels)


def _whole(ground: Ground) -> Inventory:
    """Return all nodes that any run may use, each once."""
    used = sorted(set(ground.uses))
    if len(used) == 1:
        return ground.inventories[used[0]]
    nodes = {node.name: node for number in used for node in ground.inventories[number].nodes}
    return Inventory.from_nodes(nodes.values())


def _mask(whole: Inventory, offer: Capacity) -> NDArray[np.bool_]:
    """Return which of all nodes a run may use."""
    if offer.inventory is whole:
        return offer.node_kinds >= 0
    mask = np.zeros(len(whole.nodes), dtype=np.bool_)
    mask[[whole.numbers[node.name] for node in offer.inventory.nodes]] = offer.node_kinds >= 0
    return mask


def _sites(whole: Inventory, masks: Sequence[NDArray[np.bool_]]) -> list[Site]:
    """Return all nodes with all runs, and each set of nodes that runs may use with the runs that have no others."""
    domains = np.repeat(np.arange(len(whole.places)), np.diff(whole.starts))
    distinct = {mask.tobytes(): mask for mask in masks}
    everything = np.ones(len(whole.nodes), dtype=np.bool_)
    distinct.pop(everything.tobytes(), None)
    within = {
        key: frozenset(run for run, mask in enumerate(masks) if not (mask & ~wide).any())
        for key, wide in distinct.items()
    }
    # Those that most runs compete for; names of runs decide between equals, for the order of nodes must not.
    keys = sorted(within, key=lambda key: (-len(within[key]), sorted(within[key])))[:_MAX_SITES]
    return [
        Site(whole.free, domains, frozenset(range(len(masks)))),
        *(Site(whole.free[distinct[key]], domains[distinct[key]], within[key]) for key in keys),
    ]
