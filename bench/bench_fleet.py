"""The controllers over many nodes of 20 caches each, in a real API server, and over a tenth of them.

The process is `gkm-operator controllers` as deployed, with its own account. Storms change the status of node
objects as agents do; their cost is CPU time until every status is right again. Processes beside it measure the lag by
the time when a change counted: `thin` has the product's reflector and sums, `official` the official
client's watch in the smallest loop that does the same; both run beside the controllers, so that the figures compare.
`status` is from a change to the status that counts it, with the controllers' own delay of a second.

All processes share the machine's cores, the writers among them: the API server is the limit (`reached_per_s`).
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import fleet_load
import fleet_place
from figures import Result
from fleet_failover import failovers
from fleet_figures import Row, beside, cost, settle, started
from fleet_place import FleetCluster
from fleet_process import Controllers
from fleet_statuses import Statuses
from fleet_storm import Agents
from process_cost import memory_mib

RATES = (100, 300)
"""Changes a second."""
SUMMARY = {
    "sync_s": "whole_synced_s",
    "rss_mib": "whole_rss_mib",
    "cpu_s_per_1000_events": "whole_cpu_s_per_1000",
    "lag_p50_ms": "thin_100_lag_p50_ms",
    "lag_p99_ms": "thin_100_lag_p99_ms",
}
"""The figures that stand for all of their kind."""


@dataclass(frozen=True)
class FleetSize:
    """How many runs, nodes, storms for a cost and killed leaders there are, and how long a storm is."""

    runs: int
    nodes: int
    storms: int
    storm_seconds: float
    kills: int

    def changes(self, rate: int) -> int:
        """Return the number of changes of a storm."""
        return round(rate * self.storm_seconds)


FULL = FleetSize(runs=3, nodes=10_000, storms=3, storm_seconds=20.0, kills=5)
SMALLEST = FleetSize(runs=1, nodes=100, storms=1, storm_seconds=0.2, kills=1)


def run(size: FleetSize) -> Result:
    """Measure; every run begins with an empty cluster."""
    return Result.of([_once(size, number) for number in range(1, size.runs + 1)])


def _once(size: FleetSize, number: int) -> Row:
    row: Row = {"nodes": float(size.nodes)}

    def say(what: str) -> None:
        sys.stderr.write(f"fleet: run {number} of {size.runs}: {what}\n")

    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True))
        place = stack.enter_context(fleet_place.start(Path(directory) / "place"))
        statuses = Statuses(place)
        stack.callback(statuses.close)
        statuses.start()
        begun = 0
        for part, nodes in (("tenth", size.nodes // 10), ("whole", size.nodes)):
            began = time.monotonic()
            row |= fleet_load.load(place, begun, nodes)
            row[f"{part}_load_s"] = time.monotonic() - began
            say(f"{nodes} nodes are in the API server")
            begun = nodes
            agents = Agents(place, nodes)
            controllers = Controllers.start(place, part, stack)
            row |= _settled(place, statuses, part, controllers)
            say(f"synced after {row[f'{part}_synced_s']:.1f} s, all right after {row[f'{part}_right_s']:.1f} s")
            rate, pid = RATES[0], controllers.pid
            costs = [cost(agents, statuses, pid, rate, size.changes(rate)) for _ in range(size.storms)]
            row[f"{part}_cpu_s_per_1000"] = median(one.cpu_seconds for one in costs)
            row[f"{part}_reached_per_s"] = median(one.per_second for one in costs)
            told = ", ".join(f"{one.cpu_seconds:.3f} at {one.per_second:.0f}/s" for one in costs)
            say(f"{nodes} nodes, CPU s per 1,000 changes: {told}")
            if part == "tenth":
                controllers.process.stop()
        row["cost_growth_1k_to_10k"] = row["whole_cpu_s_per_1000"] / row["tenth_cpu_s_per_1000"]
        for name in ("thin", "official"):
            row |= beside(name, agents, statuses, controllers, {rate: size.changes(rate) for rate in RATES})
            say(f"{name}: done")
        row["whole_storm_peak_rss_mib"] = memory_mib(controllers.pid, "VmHWM")
        row["whole_storm_rss_mib"] = memory_mib(controllers.pid, "VmRSS")
        row |= failovers(agents, statuses, controllers, size.kills)
        say(f"{size.kills} leaders were killed")
    return row | {name: row[detail] for name, detail in SUMMARY.items()}


def _settled(place: FleetCluster, statuses: Statuses, part: str, controllers: Controllers) -> Row:
    """Wait until all statuses are right; return the figures of the start of controllers that are synced."""
    row = started(part, controllers.pid, time.monotonic() - controllers.began)
    settle(place, statuses)
    return row | {f"{part}_right_s": time.monotonic() - controllers.began}
