"""The batch without its geometry: GPUs by run, and cuts that every batch satisfies, so that it bounds every batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gkm.packing.batches.cuts import Cut, NodeSet, cuts
from gkm.packing.batches.demand import Demand, demand
from gkm.packing.batches.instance import Instance
from gkm.packing.domains.capacity import Capacity, capacity
from gkm.packing.inventory import Inventory

_MAX_NODE_SETS = 16


@dataclass(frozen=True, slots=True)
class Relaxation:
    """Runs have the numbers of the instance. `levels` has those of each priority that fit alone, the highest first."""

    demands: tuple[Demand, ...]
    cuts: tuple[Cut, ...]
    priorities: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]


def relaxation(instance: Instance) -> Relaxation:
    """Return the relaxation of a batch.

    Raises:
        TooLargeError: a run and its inventory are together too large to be solved exactly.
    """
    whole = instance.union
    demands: list[Demand] = []
    masks: list[NDArray[np.bool_]] = []
    for run, use in zip(instance.runs, instance.uses, strict=True):
        offer = capacity(instance.inventories[use], run.request)
        demands.append(demand(offer, run.request))
        masks.append(_mask(whole, offer))
    priorities = tuple(sorted({run.priority for run in instance.runs}, reverse=True))
    levels = tuple(
        tuple(number for number, run in enumerate(instance.runs) if run.priority == priority and demands[number].gpus)
        for priority in priorities
    )
    pods = [run.request.pod_gpus for run in instance.runs]
    return Relaxation(tuple(demands), cuts(_node_sets(whole, masks), demands, pods), priorities, levels)


def _mask(whole: Inventory, offer: Capacity) -> NDArray[np.bool_]:
    """Return which of all nodes a run may use."""
    if offer.inventory is whole:
        return offer.node_kinds >= 0
    mask = np.zeros(len(whole.nodes), dtype=np.bool_)
    mask[[whole.numbers[node.name] for node in offer.inventory.nodes]] = offer.node_kinds >= 0
    return mask


def _node_sets(whole: Inventory, masks: Sequence[NDArray[np.bool_]]) -> list[NodeSet]:
    """Return all nodes with all runs, and each set of nodes that runs may use with the runs that have no others."""
    domains = whole.domain_of
    distinct = {mask.tobytes(): mask for mask in masks}
    everything = np.ones(len(whole.nodes), dtype=np.bool_)
    distinct.pop(everything.tobytes(), None)
    within = {
        key: frozenset(run for run, mask in enumerate(masks) if not (mask & ~wide).any())
        for key, wide in distinct.items()
    }
    # Those that most runs compete for; names of runs decide between equals, for the order of nodes must not.
    keys = sorted(within, key=lambda key: (-len(within[key]), sorted(within[key])))[:_MAX_NODE_SETS]
    return [
        NodeSet(whole.free, domains, frozenset(range(len(masks)))),
        *(NodeSet(whole.free[distinct[key]], domains[distinct[key]], within[key]) for key in keys),
    ]
