"""The tree and the snapshot of many nodes, and ibnetdiscover's output of many hosts: full, 12,500 and 10,000.

Every run is a process that does nothing else. `build_s` is from decoded Nodes to a snapshot
with its tree and its version, `tree_s` to the HyperNodes; `apart_s` is `build_s` where each node has an NVLink domain
of its own. `update_ms` is the median of changes of one node, from its labels to tree and version: a cordon, a move
to another domain; `update_contradicting_ms` that of a wrong label or its correction, which quarantines the node's
domain or brings it back, while ten others are in quarantine. `steady_writes` are the writes for the same nodes in
another order, `writes` those after all changes. `rss_mib_per_1000_nodes` has the Nodes and the snapshot.

Times are CPU seconds, which on a quiet machine are those of the wall; the rows have both. It ends with an error above
the targets. There is no peer beside it: topograph's module is not in the public module proxy.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import topology_controllers
import topology_inputs
from figures import Result
from support.topology.controllers import HURRIED
from support.topology.infiniband_networks import Rails
from topology_controllers import ControllersSize
from topology_inputs import Inputs

SEED = 17
TARGETS = {
    "build_s": 1.0,
    "apart_s": 1.0,
    "tree_s": 1.0,
    "update_ms": 5.0,
    "update_contradicting_ms": 5.0,
    "ibnetdiscover_10k_s": 2.0,
    "controllers_peak_of_limit": 1.0,
}
"""What the full size must not exceed."""
_PROCESS = Path(__file__).resolve().parent / "topology_process.py"
_PARTS = {
    "build": "build_s",
    "apart": "apart_s",
    "tree": "tree_s",
    "ibnetdiscover": "ibnetdiscover_10k_s",
    "groups": "groups_10k_s",
}
_PARTS |= {"writes": "writes_s"}
_COUNTS = ("update_ms", "update_contradicting_ms", "update_p99_ms", "rss_mib_per_1000_nodes", "steady_writes", "writes")


@dataclass(frozen=True)
class TopologySize:
    """How many runs count and how many warm up; nodes, changes of these, the network, the controllers' cluster."""

    runs: int
    warm_ups: int
    nodes: int
    changes: int
    network: Rails
    controllers: ControllersSize
    targets: Mapping[str, float]


FULL = TopologySize(
    runs=5,
    warm_ups=1,
    nodes=12_500,
    changes=400,
    network=Rails(pods=10, groups=25, hosts_each=40, rails=8, spines=16, cores=8),
    controllers=ControllersSize(nodes=12_500, changes=10),
    targets=TARGETS,
)
SMALLEST = TopologySize(
    runs=1,
    warm_ups=0,
    nodes=125,
    changes=8,
    network=Rails(pods=2, groups=5, hosts_each=10, rails=2, spines=2, cores=2),
    controllers=ControllersSize(nodes=125, changes=1, main=HURRIED),
    targets={},
)


@dataclass(frozen=True)
class Measured(Result):
    """The result, with what misses its target or is wrong."""

    failures: Sequence[str] = ()


def run(size: TopologySize) -> Measured:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory:
        inputs = topology_inputs.write(Path(directory), size.nodes, size.network, SEED)
        seen = [_once(size, inputs, number) for number in range(1 - size.warm_ups, size.runs + 1)][size.warm_ups :]
    controllers = topology_controllers.measured(size.controllers)
    result = Result.of([{**_row(one), **controllers} for one in seen])
    failures = [
        f"{name} is {result.figures[name]:g}, above {target:g}"
        for name, target in size.targets.items()
        if result.figures[name] > target
    ]
    failures += ["the same nodes in another order cause writes"] * any(one["steady_writes"] for one in seen)
    failures += ["a changed snapshot differs from a new one"] * any(not one["same_version"] for one in seen)
    hosts = len(list(size.network.hosts))
    failures += [f"{one['hosts']} hosts of {hosts} have a leaf group" for one in seen if one["hosts"] != hosts]
    return Measured(result.figures, result.rows, failures)


def _once(size: TopologySize, inputs: Inputs, number: int) -> dict[str, Any]:
    arguments = (_PROCESS, inputs.nodes, inputs.survey, SEED + number, size.changes)
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    sys.stderr.write(f"topology: run {number} of {size.runs}: {done.stdout.decode()}")
    return found


def _row(seen: Mapping[str, Any]) -> dict[str, float]:
    times = {name: seen["cpu"][part] for part, name in _PARTS.items()}
    walls = {f"wall_{name}": seen["wall"][part] for part, name in _PARTS.items()}
    return times | {name: float(seen[name]) for name in _COUNTS} | walls
