"""The free capacity of any domain of a tree, and the state of each node for people. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm.topology.states import NodeState, Sums, node_state
from gkm.topology.tree import Tree
from gkm.topology.usage import Usage

FREE, PARTLY, FULL = "free", "partly free", "in use"
_UNKNOWN = "Unknown"


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
    """Return whether a state is that of a node for new pods."""
    return state in (FREE, PARTLY, FULL)


def _shown(state: NodeState) -> str:
    if state.used is None:
        return _UNKNOWN
    if state.problem is not None:
        return state.problem.value
    return FREE if state.free == state.gpus else PARTLY if state.free else FULL
