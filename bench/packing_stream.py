"""A stream of runs on 2,502 nodes: the GPU-hours that each planner rejects, and the cost of a decision.

One pool without domains rejects 0.5 % at a load of 0.80 and 5.2 % at 0.95 (the formula of Kaufman and Roberts, which
holds for any holding times): the rest is the loss by domains. M2's rules reject 27 % at 0.80.

`rejected_percent` are GPU-hours rejected of those offered; `domains_a_run` of the runs that were placed; `cpu_ms` is
that of one decision. All ways get the same runs.
"""

import heapq
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, quantiles

from gkm.packing.inventory import Inventory
from gkm.packing.values import Policy
from packing_report import Cell, Table
from packing_stream_runs import DOMAINS, NODES_A_DOMAIN, Arrival, arrivals, empty_cluster
from packing_stream_ways import WAYS, Way, holds

Row = dict[str, float]
FIGURES = ("rejected_percent", "domains_a_run", "cpu_ms_mean", "cpu_ms_p99")


@dataclass(frozen=True)
class StreamSize:
    """The load of each stream, which has a seed of its own, and its runs; before these, a quarter fills the cluster."""

    loads: Sequence[float]
    count: int


@dataclass
class Streams:
    """The effect of each way on each stream."""

    streams: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def loads(self) -> list[float]:
        """Return the loads, each once."""
        return sorted({stream["load"] for stream in self.streams})

    def tables(self) -> list[Table]:
        """Return a row for each load and way: means, and what each stream rejected."""
        return [Table("stream", [self._row(load, way) for load in self.loads for way in WAYS])]

    def figures(self) -> dict[str, float]:
        """Return the means; `online_rejected_percent` is that of the planner at the lowest load."""
        means = {
            f"load_{load:.2f}_{way}_{name}": self._mean(load, way, name)
            for load in self.loads
            for way in WAYS
            for name in FIGURES
        }
        planner = f"load_{self.loads[0]:.2f}_{Policy.FEWEST_DOMAINS}"
        return {"online_rejected_percent": means[f"{planner}_rejected_percent"], **means}

    def _row(self, load: float, way: str) -> dict[str, Cell]:
        rejected = [stream[f"{way}_rejected_percent"] for stream in self.streams if stream["load"] == load]
        means = {name: self._mean(load, way, name) for name in FIGURES}
        return {
            "load": f"{load:.2f}",
            "way": way,
            **means,
            "rejected by seed": " ".join(f"{each:.2f}" for each in rejected),
        }

    def _mean(self, load: float, way: str, name: str) -> float:
        return round(mean(stream[f"{way}_{name}"] for stream in self.streams if stream["load"] == load), 3)


def measured(size: StreamSize) -> Streams:
    """Run every way on each stream."""
    return Streams([_stream(seed, load, size.count) for seed, load in enumerate(size.loads, 1)])


def _stream(seed: int, load: float, count: int) -> Row:
    warm_up = count // 4
    runs = arrivals(seed, load, warm_up, count)
    row: Row = {"load": load, "seed": float(seed)}
    for name, way in WAYS.items():
        row |= {f"{name}_{figure}": value for figure, value in effect(name, way, runs, warm_up).items()}
        sys.stderr.write(f"stream: load {load}, seed {seed}, {name}: {row[f'{name}_{FIGURES[0]}']:.2f} % rejected\n")
    return row


def effect(name: str, way: Way, runs: Sequence[Arrival], warm_up: int, domains: int = DOMAINS) -> Row:
    """Return FIGURES of a way on an empty cluster; the first `warm_up` runs fill it and do not count."""
    inventory = empty_cluster(domains)
    ends: list[tuple[float, int, Sequence[int]]] = []
    offered = rejected = 0.0
    taken_domains: list[int] = []
    seconds: list[float] = []
    for number, arrival in enumerate(runs):
        freed: list[int] = []
        while ends and ends[0][0] <= arrival.at:
            freed += heapq.heappop(ends)[2]
        inventory = _with(inventory, freed, free=True)
        began = time.process_time()
        taken = way(inventory, arrival)
        spent = time.process_time() - began
        if taken is not None:
            assert name == "one-pool" or holds(inventory, arrival, taken), f"{name} placed what does not hold"
            inventory = _with(inventory, taken, free=False)
            heapq.heappush(ends, (arrival.at + arrival.holding, number, taken))
        if number >= warm_up:
            seconds.append(spent)
            offered += arrival.gpu_hours
            rejected += 0 if taken is not None else arrival.gpu_hours
            taken_domains += [len({node // NODES_A_DOMAIN for node in taken})] if taken is not None else []
    milliseconds = [1000 * value for value in seconds]
    values = 100 * rejected / offered, mean(taken_domains), mean(milliseconds), quantiles(milliseconds, n=100)[98]
    return dict(zip(FIGURES, values, strict=True))


def _with(inventory: Inventory, numbers: Sequence[int], *, free: bool) -> Inventory:
    """Return the inventory with these nodes free or used; its order stays, so all other data is reused."""
    if not numbers:
        return inventory
    nodes = list(inventory.nodes)
    gpus = inventory.free.copy()
    for number in numbers:
        gpus[number] = nodes[number].total if free else 0
        nodes[number] = replace(nodes[number], free=int(gpus[number]))
    return replace(inventory, nodes=tuple(nodes), free=gpus)
