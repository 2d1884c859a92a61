"""How many pods of a run a node can start, by CPUs, memory and slots for pods. Pure.

A run that names no requests gets a check that finds nodes which others have used up: one GPU's share of the node must
be free. That is what is allocatable, divided by the GPUs and one: the one more is for pods without GPUs.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from gkm.topology.nodes import Resources
from gkm.topology.pods import NodeLoad
from gkm.topology.quantities import thousandths

_ONE = 1000
"""A pod takes one slot."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """One pod of a run: its GPUs, and its requests in thousandths of CPUs and of bytes, None where it names none."""

    gpus: int = 1
    cpu: int | None = None
    memory: int | None = None


def load_of(pod: PodDemand, gpus: int) -> NodeLoad:
    """Return what the pods of a run that take so many GPUs of a node request; what the run does not name is 0."""
    pods = -(-gpus // pod.gpus)
    return NodeLoad((pod.cpu or 0) * pods, (pod.memory or 0) * pods, pods)


class Lacking(StrEnum):
    """What a node has too little of."""

    CPU = "CPUs"
    MEMORY = "GiB of memory"
    PODS = "slots for pods"


class Shortage(NamedTuple):
    """Why a node cannot start a pod; the numbers are in thousandths."""

    of: Lacking
    free: int
    total: int
    needed: int

    @property
    def message(self) -> str:
        """Return what is free and what is needed."""
        free, total, needed = (f"{number / _UNITS[self.of]:.4g}" for number in (self.free, self.total, self.needed))
        return f"{free} of {total} {self.of.value} are free, and a pod needs {needed}"


_UNITS = {Lacking.CPU: 1000, Lacking.MEMORY: 1000 << 30, Lacking.PODS: 1000}


def pods_that_fit(allocatable: Resources, gpus: int, load: NodeLoad, pod: PodDemand) -> int | Shortage:
    """Return how many pods of a run a node with these GPUs can start besides its load, or why none.

    A resource that the node does not report is 0 for a pod that requests it, as for the scheduler.

    Raises:
        ValueError: a quantity of the node is invalid.
    """
    most = gpus
    for of, quantity, taken, requested in (
        (Lacking.CPU, allocatable.cpu, load.cpu, pod.cpu),
        (Lacking.MEMORY, allocatable.memory, load.memory, pod.memory),
        (Lacking.PODS, allocatable.pods, 1000 * load.pods, _ONE if allocatable.pods is not None else 0),
    ):
        total = 0 if quantity is None else thousandths(quantity, of.value)
        free = max(0, total - taken)
        needed = total // (gpus + 1) if requested is None else requested
        if free < needed:
            return Shortage(of, free, total, needed)
        if requested:
            most = min(most, free // requested)
    return most
