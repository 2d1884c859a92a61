"""The planners for a stream of runs: ours in each policy, its peers, and one pool without domains."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gkm.packing.inventory import Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Policy, Request
from packing_stream_runs import NODE_GPUS, NODES_A_DOMAIN, Arrival
from support.packing.kueue import best_fit
from support.packing.m2 import Peer, by_rules, by_text

Numbers = Sequence[int]
"""The nodes of the inventory that a run gets, each as a whole."""
Way = Callable[[Inventory, Arrival], Numbers | None]
"""Returns None if the run is rejected."""


def planned(policy: Policy) -> Way:
    """Return the planner with a policy."""

    def place(inventory: Inventory, run: Arrival) -> Numbers | None:
        answer = plan(inventory, run.request(policy), "stream")
        if not isinstance(answer, Plan):
            return None
        return [inventory.numbers[share.node] for group in answer.groups for share in group.nodes]

    return place


def peer(rules: Callable[[Sequence[Node], Request], Peer]) -> Way:
    """Return a peer. It gets only the free nodes: full ones affect only its time."""

    def place(inventory: Inventory, run: Arrival) -> Numbers | None:
        free = [int(number) for number in inventory.free.nonzero()[0]]
        answer = rules([inventory.nodes[number] for number in free], run.request())
        return list(_nodes(inventory, free, run, answer.groups)) if answer.valid else None

    return place


def _nodes(inventory: Inventory, free: Numbers, run: Arrival, groups: Mapping[Location, int]) -> Iterable[int]:
    left = {place: count * run.size.nodes for place, count in groups.items()}
    for number in free:
        place = inventory.nodes[number].place
        if left.get(place):
            left[place] -= 1
            yield number


def one_pool(inventory: Inventory, run: Arrival) -> Numbers | None:
    """Place a run on any free nodes: no planner can place a run that this one rejects."""
    free = inventory.free.nonzero()[0].tolist()
    return free[: run.nodes] if len(free) >= run.nodes else None


WAYS: Mapping[str, Way] = {
    "m2-rules": peer(by_rules),
    "m2-text": peer(by_text),
    "kueue": peer(best_fit),
    **{str(policy): planned(policy) for policy in Policy},
    "one-pool": one_pool,
}


def holds(inventory: Inventory, run: Arrival, taken: Numbers) -> bool:
    """Return whether these nodes are free, and each domain holds whole groups."""
    by_domain: dict[int, int] = {}
    for number in taken:
        by_domain[number // NODES_A_DOMAIN] = by_domain.get(number // NODES_A_DOMAIN, 0) + 1
    free = all(int(inventory.free[number]) == NODE_GPUS for number in taken)
    return free and len(set(taken)) == run.nodes and all(not count % run.size.nodes for count in by_domain.values())
