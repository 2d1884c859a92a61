"""GPUs and health of each node, their totals over any domain of a tree, and both for people. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from gkm.api.topology_settings import Topology
from gkm.topology.eligibility import Exclusion, unusable
from gkm.topology.labels import named_flavor
from gkm.topology.nodes import Node, gpu_count
from gkm.topology.trees.tree import Tree
from gkm.topology.usage import Usage

FREE, PARTLY, FULL = "free", "partly free", "in use"
_UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node with its GPUs. `used` is None if that number or the number of GPUs is unknown; then no GPU is free.

    `problem` is why no new pod can use it, in the order of docs/reference/node-locations.md, with default tolerations.
    """

    name: str
    flavor: str
    gpus: int
    used: int | None
    problem: Exclusion | None

    @property
    def free(self) -> int:
        """Return the number of GPUs that a new pod could use."""
        return 0 if self.problem or self.used is None else max(0, self.gpus - self.used)


class Totals(NamedTuple):
    """Sums over the nodes of a domain: numbers of nodes, except `capacity` and `free`, which are GPUs.

    Each node is counted in one of `usable` to `tainted`. `unknown` nodes have an unknown number of GPUs or free GPUs.
    `wholly_free` nodes are usable, and all of their GPUs are free.
    """

    nodes: int = 0
    capacity: int = 0
    free: int = 0
    wholly_free: int = 0
    usable: int = 0
    without_gpus: int = 0
    unknown: int = 0
    cordoned: int = 0
    not_ready: int = 0
    fabric_unhealthy: int = 0
    tainted: int = 0


_COUNTED = {
    None: "usable",
    Exclusion.NO_GPUS: "without_gpus",
    Exclusion.CORDONED: "cordoned",
    Exclusion.NOT_READY: "not_ready",
    Exclusion.FABRIC_UNHEALTHY: "fabric_unhealthy",
    Exclusion.TAINTED: "tainted",
}


def totals(state: NodeState) -> Totals:
    """Return the totals that one node adds to its domains."""
    return _totals(state.gpus, state.free, "unknown" if state.used is None else _COUNTED[state.problem])


@lru_cache(maxsize=1024)  # thousands of nodes have a few
def _totals(gpus: int, free: int, counted: str) -> Totals:
    return Totals(1, gpus, free, int(0 < gpus == free))._replace(**{counted: 1})


class Sums:
    """Totals of any interval of a tree's nodes, in constant time."""

    def __init__(self, states: Iterable[NodeState]) -> None:
        columns = [*zip(*map(totals, states), strict=True)] or [()] * len(Totals._fields)
        self._sums = [list(accumulate(column, initial=0)) for column in columns]

    def of(self, first: int, end: int) -> Totals:
        """Return the totals of the nodes from index `first` up to `end`, without `end`."""
        return Totals(*[sums[end] - sums[first] for sums in self._sums])


def node_state(node: Node, used: int | None, settings: Topology) -> NodeState:
    """Return the state of a node; `used` is the number of GPUs that its pods use, None if it is unknown."""
    keys = settings.labels
    health = next((value for key in keys.health if (value := node.labels.get(key))), "")
    gpus = 0
    if node.gpus is not None:
        try:
            gpus = gpu_count(node.gpus)
        except ValueError:
            used = None
    known_empty = used is not None and not gpus
    problem = Exclusion.NO_GPUS if known_empty else unusable(node, health)
    return NodeState(node.name, named_flavor(node.labels, keys.flavor), gpus, used, problem)


class IntervalCapacity:
    """The states of all nodes of a tree in their order, and totals `of` any interval of them."""

    def __init__(self, tree: Tree, nodes: Mapping[str, Node], usage: Usage, settings: Topology) -> None:
        states = [
            node_state(nodes[name], None if name in usage.faults else usage.gpus.get(name, 0), settings)
            for name in tree.nodes
        ]
        self.states: Sequence[str] = [_shown(state) for state in states]
        self.of = Sums(states).of

    def unusable(self) -> Mapping[str, int]:
        """Return the numbers of nodes that no new pod can use, by the reason."""
        return {state: count for state, count in sorted(Counter(self.states).items()) if not is_usable(state)}


def is_usable(state: str) -> bool:
    """Return whether a node in this state takes new pods."""
    return state in (FREE, PARTLY, FULL)


def _shown(state: NodeState) -> str:
    if state.used is None:
        return _UNKNOWN
    if state.problem is not None:
        return state.problem.value
    return FREE if state.free == state.gpus else PARTLY if state.free else FULL
