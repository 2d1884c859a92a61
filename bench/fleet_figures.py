"""The cost and the lag of a storm, for the controllers and for watchers beside them."""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fleet_place import NAMESPACE, FleetCluster
from fleet_process import LONGEST_SECONDS, Controllers
from fleet_statuses import Probe, Statuses, Sums, truth
from fleet_storm import Agents, Storm, percentile_ms, storm
from process_cost import cpu_seconds, memory_mib
from support.host.processes import Process
from support.host.waiting import until

Row = dict[str, float]
_WATCHER = Path(__file__).resolve().parent / "fleet_watcher.py"


@dataclass(frozen=True)
class Watcher:
    """A process of fleet_watcher.py."""

    process: Process
    output: Path

    @classmethod
    def start(cls, place: FleetCluster, how: str, stack: ExitStack, row: Row) -> "Watcher":
        """Start it and wait until it has the fleet; return the figures of the start."""
        log, output, synced = (place.directory / f"{how}.{kind}" for kind in ("log", "json", "synced"))
        words: list[str | Path] = [
            sys.executable,
            _WATCHER,
            how,
            place.cluster.kubeconfig,
            NAMESPACE,
            place.directory / "digests.json",
        ]
        began = time.monotonic()
        process = Process.start(how, [*words, output, synced], log)
        stack.callback(process.stop)
        process.ready(synced.exists, "it is synced", LONGEST_SECONDS)
        row |= started(how, process.pid, time.monotonic() - began)
        return cls(process, output)

    def end(self) -> tuple[dict[str, Sums], dict[str, int]]:
        """Stop it; return its sums, and the time of each version."""
        self.process.stop()
        found = json.loads(self.output.read_text())
        return {name: Sums(*sums) for name, sums in found["sums"].items()}, found["seen"]


@dataclass(frozen=True)
class Cost:
    """CPU seconds for 1,000 changes, and how many a second they were: a status sums up what comes in a second."""

    cpu_seconds: float
    per_second: float


def started(name: str, pid: int, seconds: float) -> Row:
    """Return the figures of a process that is synced."""
    return {
        f"{name}_synced_s": seconds,
        f"{name}_sync_cpu_s": cpu_seconds(pid),
        f"{name}_rss_mib": memory_mib(pid, "VmRSS"),
        f"{name}_peak_rss_mib": memory_mib(pid, "VmHWM"),
    }


def cost(agents: Agents, statuses: Statuses, pid: int, rate: float, count: int) -> Cost:
    """Return the cost of changes for a process, until the statuses are right again."""
    before = cpu_seconds(pid)
    made = storm(agents, _stormed(agents.place), rate, count)
    settle(agents.place, statuses)
    return Cost(1000 * (cpu_seconds(pid) - before) / len(made.writes), made.rate)


def beside(name: str, agents: Agents, statuses: Statuses, controllers: Controllers, rates: dict[int, int]) -> Row:
    """Run a watcher beside the controllers through one storm for each rate (and its changes); return its figures.

    CPU seconds, the watcher's, the controllers' and the API server's, are for 1,000 changes.
    """
    row: Row = {}
    place = agents.place
    with ExitStack() as stack:
        watcher = Watcher.start(place, name, stack, row)
        pids = {name: watcher.process.pid, "api_server": place.pid("kube-apiserver"), "controllers": controllers.pid}
        storms: dict[int, Storm] = {}
        for rate, count in rates.items():
            before = {who: cpu_seconds(pid) for who, pid in pids.items()}
            with Probe(agents, probed(place), statuses) as probe:
                storms[rate] = storm(agents, _stormed(place), rate, count)
            settle(place, statuses)
            changes = len(storms[rate].writes) + len(probe.seconds)
            whose = f"{name}_{rate}"
            row |= {
                f"{whose}_{who}_cpu_s": 1000 * (cpu_seconds(pid) - before[who]) / changes for who, pid in pids.items()
            }
            row[f"{whose}_reached_per_s"] = storms[rate].rate
            row[f"{whose}_status_p50_s"] = median(probe.seconds)
            row[f"{whose}_status_max_s"] = max(probe.seconds)
        row[f"{name}_storm_peak_rss_mib"] = memory_mib(watcher.process.pid, "VmHWM")
        sums, seen = watcher.end()
        row[f"{name}_sums_wrong"] = float(sum(sums[cache] != good for cache, good in truth(place).items()))
        for rate, made in storms.items():
            row |= _lags(f"{name}_{rate}", made, seen)
    return row


def settle(place: FleetCluster, statuses: Statuses) -> None:
    """Wait until the statuses equal a full list."""
    wanted = truth(place)
    try:
        until(lambda: statuses.are(wanted), "the statuses", LONGEST_SECONDS)
    except TimeoutError as late:
        raise TimeoutError(f"{late}: {statuses.wrong(wanted)[:3]}") from late


def probed(place: FleetCluster) -> str:
    """Return the cache that no storm changes."""
    return max(place.digests)


def _stormed(place: FleetCluster) -> list[str]:
    return sorted(place.digests)[:-1]


def _lags(name: str, made: Storm, seen: dict[str, int]) -> Row:
    """Return the lag between a change and its processing, and the time of the change's own response."""
    taken = [seen[write.version] - write.sent for write in made.writes if write.version in seen]
    answered = [write.answered - write.sent for write in made.writes]
    return {
        f"{name}_lag_p50_ms": percentile_ms(taken, 50),
        f"{name}_lag_p99_ms": percentile_ms(taken, 99),
        f"{name}_write_p50_ms": percentile_ms(answered, 50),
        f"{name}_write_p99_ms": percentile_ms(answered, 99),
        f"{name}_lost": float(len(made.writes) - len(taken)),
    }
