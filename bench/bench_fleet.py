"""The controllers over NODES nodes of 20 caches each, in a real API server, and over a tenth of them.

The process is `gkm-operator controllers` as deployed, with its own account. Storms change the status of node
objects as agents do; their cost is CPU time until every status is right again. Processes beside it measure the lag by
the time when a change counted: `thin` has the product's reflector and sums, `official` the official
client's watch in the smallest loop that does the same; both run beside the controllers, so that the figures compare.
`status` is from a change to the status that counts it, with the controllers' own delay of a second.

All processes share the machine's cores, the writers among them: the API server is the limit (`reached_per_s`).
"""

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import fleet_load
import fleet_place
from figures import Result
from fleet_failover import failovers
from fleet_figures import Row, beside, cost, settle, started
from fleet_place import FleetCluster
from fleet_process import Controllers, memory_mib
from fleet_statuses import Statuses
from fleet_storm import Agents

RUNS = int(os.environ.get("RUNS", "3"))
NODES = int(os.environ.get("NODES", "10000"))
KILLS = int(os.environ.get("KILLS", "5"))
REPEATS = 3
STORM_SECONDS = int(os.environ.get("STORM_SECONDS", "20"))
RATES = (100, 300)


def run() -> Result:
    """Measure; every run begins with an empty cluster."""
    return Result.of([_once(number) for number in range(1, RUNS + 1)])


def _once(number: int) -> Row:
    row: Row = {"nodes": float(NODES)}

    def say(what: str) -> None:
        sys.stderr.write(f"fleet: run {number} of {RUNS}: {what}\n")

    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True))
        place = stack.enter_context(fleet_place.start(Path(directory) / "place"))
        statuses = Statuses(place)
        stack.callback(statuses.close)
        statuses.start()
        begun = 0
        for size, nodes in (("tenth", NODES // 10), ("whole", NODES)):
            began = time.monotonic()
            row |= fleet_load.load(place, begun, nodes)
            row[f"{size}_load_s"] = time.monotonic() - began
            say(f"{nodes} nodes are in the API server")
            begun = nodes
            agents = Agents(place, nodes)
            controllers = _start(place, statuses, size, stack, row)
            say(f"synced after {row[f'{size}_synced_s']:.1f} s, all right after {row[f'{size}_right_s']:.1f} s")
            rate = RATES[0]
            costs = [cost(agents, statuses, controllers.pid, rate, rate * STORM_SECONDS) for _ in range(REPEATS)]
            row[f"{size}_cpu_s_per_1000"] = median(one.cpu_seconds for one in costs)
            row[f"{size}_reached_per_s"] = median(one.per_second for one in costs)
            told = ", ".join(f"{one.cpu_seconds:.3f} at {one.per_second:.0f}/s" for one in costs)
            say(f"{nodes} nodes, CPU s per 1,000 changes: {told}")
            if size == "tenth":
                controllers.process.stop()
        row["cost_ratio"] = row["whole_cpu_s_per_1000"] / row["tenth_cpu_s_per_1000"]
        for name in ("thin", "official"):
            row |= beside(name, agents, statuses, controllers, {rate: rate * STORM_SECONDS for rate in RATES})
            say(f"{name}: done")
        row["whole_storm_peak_rss_mib"] = memory_mib(controllers.pid, "VmHWM")
        row["whole_storm_rss_mib"] = memory_mib(controllers.pid, "VmRSS")
        row |= failovers(agents, statuses, controllers, KILLS)
        say(f"{KILLS} leaders were killed")
    return row


def _start(place: FleetCluster, statuses: Statuses, size: str, stack: ExitStack, row: Row) -> Controllers:
    """Start the controllers; wait until they are synced and all statuses are right."""
    controllers = Controllers.start(place, size, stack)
    row |= started(size, controllers.pid, time.monotonic() - controllers.began)
    settle(place, statuses)
    row[f"{size}_right_s"] = time.monotonic() - controllers.began
    return controllers
