"""Would another order of costs reject less? The stream of packing_stream on counts of free nodes, not on nodes.

Pods there are whole nodes, so a domain is the number of its free nodes, and a plan is how many groups each takes: a
small table finds the best under any costs. A decision takes a sixth of the time, so there can be
more of them.
`PYTHONPATH=tests python bench/packing_stream_model.py` prints GPU-hours rejected and domains a run for each order.
"""

import heapq
import os
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import starmap
from statistics import mean

from packing_stream_runs import DOMAINS, NODES_A_DOMAIN, SIZES, Arrival, arrivals

LOADS = (0.80, 0.82)
SEEDS = int(os.environ.get("SEEDS", "12"))
WARM_UP, COUNT = 3_000, 9_000
ORDERS = (
    ("domains", "stranded"),
    ("stranded", "domains"),
    ("domains", "unusable", "stranded"),
    ("unusable", "domains", "stranded"),
    ("unusable", "stranded", "domains"),
    ("pristine", "domains", "stranded"),
    ("pristine", "stranded", "domains"),
)
"""`unusable`: the GPUs that a plan adds to the expected unusable ones of the stream's mix (reference/calculus.md)."""

Order = tuple[str, ...]
Taken = Mapping[int, int]
"""Groups by domain."""
_WIDTH = 24
_IMPOSSIBLE = 1 << 100


def _unusable(free: int) -> int:
    """Return the nodes of a domain that no group of a kind can use, times the kind's groups, for all kinds."""
    return sum(size.weight * size.groups * (free % size.nodes) for size in SIZES)


@cache
def cost(order: Order, free: int, groups: int, nodes: int) -> int:
    """Return the cost of a domain with `free` nodes that takes `groups` groups."""
    parts = {
        "domains": 1,
        "stranded": free,
        "pristine": int(free == NODES_A_DOMAIN),
        "unusable": _unusable(free - groups * nodes) - _unusable(free),
    }
    total = 0
    for name in order:
        total = (total << _WIDTH) + parts[name]
    return total


def placed(free: Sequence[int], run: Arrival, order: Order) -> Taken | None:
    """Return the plan of least cost; None if none fits."""
    wanted, nodes = run.size.groups, run.size.nodes
    least = [0] + [_IMPOSSIBLE] * wanted
    taken: list[list[int]] = []
    for here in free:
        before = list(least)
        choice = [0] * (wanted + 1)
        for groups in range(1, min(here // nodes, wanted) + 1):
            price = cost(order, here, groups, nodes)
            for count in range(groups, wanted + 1):
                if before[count - groups] + price < least[count]:
                    least[count], choice[count] = before[count - groups] + price, groups
        taken.append(choice)
    # Costs may be below zero: an impossible one may have decreased a little, never to half.
    return _read(taken, wanted) if least[wanted] < _IMPOSSIBLE // 2 else None


def _read(taken: Sequence[Sequence[int]], wanted: int) -> Taken:
    found = {}
    for domain in range(len(taken) - 1, -1, -1):
        if taken[domain][wanted]:
            found[domain] = taken[domain][wanted]
            wanted -= taken[domain][wanted]
    return found


def rejected(runs: Sequence[Arrival], order: Order) -> tuple[float, float]:
    """Return rejected GPU-hours in percent of those offered, and domains a run."""
    free = [NODES_A_DOMAIN] * DOMAINS
    ends: list[tuple[float, int, Taken, int]] = []
    offered = lost = 0.0
    domains: list[int] = []
    for number, run in enumerate(runs):
        while ends and ends[0][0] <= run.at:
            _, _, freed, nodes = heapq.heappop(ends)
            for domain, groups in freed.items():
                free[domain] += groups * nodes
        taken = placed(free, run, order)
        counts = number >= WARM_UP
        offered += run.gpu_hours if counts else 0
        if taken is None:
            lost += run.gpu_hours if counts else 0
            continue
        domains += [len(taken)] if counts else []
        for domain, groups in taken.items():
            free[domain] -= groups * run.size.nodes
        heapq.heappush(ends, (run.at + run.holding, number, taken, run.size.nodes))
    return 100 * lost / offered, mean(domains)


def main() -> None:
    for load in LOADS:
        streams = [arrivals(seed, load, WARM_UP, COUNT) for seed in range(1, SEEDS + 1)]
        for order in ORDERS:
            lost, domains = zip(*starmap(rejected, ((runs, order) for runs in streams)), strict=True)
            seen = " ".join(f"{value:.2f}" for value in lost)
            print(f"{load:.2f} {', '.join(order):<32}{mean(lost):>8.3f} %{mean(domains):>8.3f}   {seen}", flush=True)


if __name__ == "__main__":
    main()
