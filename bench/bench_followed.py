"""Plans that schedulers follow, and the plans beside Kueue's own.

`followed_percent` are the pods that kube-scheduler bound where the plan of their Run said, of all pods of random runs
on nodes of kwok. `run_to_pods_ms` is the time from the request that creates a Run to its pods without gates, each with
its node, on a fleet of objects. `load_…` compare the controllers with Kueue's topology-aware scheduling: one stream of
runs on the same nodes, by turns. `rejected_percent` are GPU-hours of runs without a place, of those offered.

kube-apiserver, etcd, kube-scheduler, kwok and Kueue share the machine's cores with the controllers and the bench.
"""

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import followed_place
import followed_runs
from figures import Result
from followed_runs import random_sizes
from followed_stream import GkmPlanner, KueuePlanner, Planner, stream
from packing_stream_runs import NODE_GPUS

Row = dict[str, float]


@dataclass(frozen=True)
class FollowedSize:
    """Domains and runs of each part, and the loads of the stream."""

    domains: int
    runs: int
    timed_domains: int
    timed_runs: int
    stream_domains: int
    stream_runs: int
    loads: tuple[float, ...]


FULL = FollowedSize(112, 200, 556, 40, 36, 600, (0.8, 0.9))
SMALLEST = FollowedSize(6, 4, 6, 2, 2, 8, (0.8, 0.9))


def run(size: FollowedSize) -> Result:
    """Measure each part on a cluster that is new."""
    row = {**_followed(size), **_timed(size), **_streams(size)}
    return Result({name: round(value, 3) for name, value in row.items()}, [row])


def _followed(size: FollowedSize) -> Row:
    nodes = _nodes(size.domains, followed_runs.NODE_GPUS)
    with _directory() as directory, followed_place.scheduled(Path(directory), nodes) as site:
        row = followed_runs.placed(site, random_sizes(size.runs))
    return _told("kube-scheduler", {**row, "nodes": float(len(nodes))})


def _timed(size: FollowedSize) -> Row:
    nodes = _nodes(size.timed_domains, followed_runs.NODE_GPUS)
    with _directory() as directory, followed_place.objects_only(Path(directory), nodes) as site:
        found = followed_runs.milliseconds(site, random_sizes(size.timed_runs))
    row = {"run_to_pods_p50_ms": median(found), "run_to_pods_p99_ms": quantiles(found, n=100)[-1]}
    return _told("requests", {**row, "timed_nodes": float(len(nodes))})


def _streams(size: FollowedSize) -> Row:
    nodes = _nodes(size.stream_domains, NODE_GPUS)
    row: Row = {}
    gpus = NODE_GPUS * len(nodes)
    with _directory() as directory, followed_place.beside_kueue(Path(directory), nodes, gpus) as site:
        planners: dict[str, Planner] = {"gkm": GkmPlanner(site), "kueue": KueuePlanner(site.cluster)}
        for load in size.loads:
            for name, planner in planners.items():
                found = stream(planner, size.stream_domains, load, size.stream_runs).row()
                row |= _told("stream", {f"load_{load:.2f}_{name}_{figure}": value for figure, value in found.items()})
            row[f"load_{load:.2f}_rejected_ratio"] = _ratio(row, load)
    return row


def _ratio(row: Mapping[str, float], load: float) -> float:
    """Return the part that GKM rejects of what Kueue rejects; 1 if both reject nothing."""
    ours, theirs = (row[f"load_{load:.2f}_{name}_rejected_percent"] for name in ("gkm", "kueue"))
    return ours / theirs if theirs else float(ours > 0) + 1.0


def _nodes(domains: int, gpus: int) -> list[dict[str, object]]:
    a_domain = followed_runs.NODES_A_DOMAIN
    return [followed_place.node(number, a_domain, gpus) for number in range(domains * a_domain)]


def _directory() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="gkm-bench-", ignore_cleanup_errors=True)


def _told(part: str, row: Row) -> Row:
    sys.stderr.write(f"followed: {part}: {', '.join(f'{name} {value:.2f}' for name, value in row.items())}\n")
    return row
