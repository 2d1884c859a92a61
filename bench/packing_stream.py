"""A stream of runs on 2,502 nodes: the GPU-hours that each planner rejects, and the cost of a decision.

One pool without domains rejects 0.5 % at a load of 0.80 and 5.2 % at 0.95 (the formula of Kaufman and Roberts, which
holds for any holding times): the rest is the loss by domains. M2's rules reject 27 % at 0.80.

`rejected_percent` are GPU-hours rejected of those offered; `domains_a_run` of the runs that were placed; `cpu_ms` is
that of one decision. All ways get the same runs. Also by itself: `PYTHONPATH=tests python bench/packing_stream.py`,
which writes build/bench/packing_stream.json as well.
"""

import heapq
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, quantiles

from figures import Result
from gkm.packing.inventory import Inventory
from packing_stream_runs import NODES_A_DOMAIN, Arrival, arrivals, empty_cluster
from packing_stream_ways import WAYS, Way, holds
from run import OUTPUT, machine

LOADS = tuple(float(load) for load in os.environ.get("LOADS", "0.80,0.80,0.80,0.95").split(","))
"""One run of the bench for each, with a seed of its own."""
COUNT = int(os.environ.get("COUNT", "5000"))
WARM_UP = COUNT // 4

Row = dict[str, float]
FIGURES = ("rejected_percent", "domains_a_run", "cpu_ms_mean", "cpu_ms_p99")


class Streams(Result):
    """Means over the runs of each load, one line a way."""

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> "Streams":
        loads = sorted({row["load"] for row in rows})
        named = {
            f"load_{load:.2f}_{name}": round(mean(row[name] for row in rows if row["load"] == load), 3)
            for load in loads
            for name in rows[0]
            if name not in ("load", "seed")
        }
        return cls(named, rows)

    def table(self) -> str:
        lines = [f"{'load':<6}{'way':<16}" + "".join(f"{name:>18}" for name in FIGURES) + "   rejected by seed"]
        for load in sorted({row["load"] for row in self.rows}):
            for way in WAYS:
                values = "".join(f"{self.figures[f'load_{load:.2f}_{way}_{name}']:>18.3f}" for name in FIGURES)
                seen = [f"{row[f'{way}_{FIGURES[0]}']:.2f}" for row in self.rows if row["load"] == load]
                lines.append(f"{load:<6.2f}{way:<16}{values}   {' '.join(seen)}")
        return "\n".join(lines)


def run() -> Streams:
    """Measure: one stream for each of LOADS, every way on each."""
    return Streams.of([_stream(seed, load) for seed, load in enumerate(LOADS, 1)])


def measured() -> list[dict[str, float | str]]:
    """Measure, and return a row for each load and way."""
    found = run().figures
    rows: list[dict[str, float | str]] = []
    for load in sorted(set(LOADS)):
        for way in WAYS:
            rows.append({"load": load, "way": way})
            rows[-1].update({name: found[f"load_{load:.2f}_{way}_{name}"] for name in FIGURES})
    return rows


def _stream(seed: int, load: float) -> Row:
    runs = arrivals(seed, load, WARM_UP, COUNT)
    row: Row = {"load": load, "seed": float(seed)}
    for name, way in WAYS.items():
        row |= {f"{name}_{figure}": value for figure, value in _effect(name, way, runs).items()}
        sys.stderr.write(f"stream: load {load}, seed {seed}, {name}: {row[f'{name}_{FIGURES[0]}']:.2f} % rejected\n")
    return row


def _effect(name: str, way: Way, runs: Sequence[Arrival]) -> Row:
    inventory = empty_cluster()
    ends: list[tuple[float, int, Sequence[int]]] = []
    offered = rejected = 0.0
    domains: list[int] = []
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
        if number >= WARM_UP:
            seconds.append(spent)
            offered += arrival.gpu_hours
            rejected += 0 if taken is not None else arrival.gpu_hours
            domains += [len({node // NODES_A_DOMAIN for node in taken})] if taken is not None else []
    milliseconds = [1000 * value for value in seconds]
    values = 100 * rejected / offered, mean(domains), mean(milliseconds), quantiles(milliseconds, n=100)[98]
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


def main() -> None:
    """Measure, print the table and write the figures as JSON, as bench/run.py does."""
    result = run()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine(), "figures": result.figures, "rows": result.rows}
    (OUTPUT / "packing_stream.json").write_text(json.dumps(document, indent=1) + "\n")
    print(result.table())


if __name__ == "__main__":
    main()
