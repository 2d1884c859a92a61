"""The controllers as a process beside a real API server with 12,500 Nodes as large as those of kubelets.

`controllers_first_s` is from their start to the last HyperNode of the first tree, `controllers_change_s` from the
answer to a new label of a node to the last write of it, and `controllers_peak_mib` the most memory of the process,
without children; `controllers_peak_of_limit` is its share of its container's. The API server and etcd are on the same
machine.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from figures import Result
from fleet_objects import node, node_name
from fleet_place import Alone
from fleet_process import LONGEST_SECONDS, memory_mib
from gkm.api.hypernodes import HyperNodeObject
from gkm.api.topology_status import TopologyReason, parse_status
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CONFIGMAPS, HYPERNODES, NODES
from gkm.topology.hypernode_objects import own
from gkm.topology.placements import placements
from support.cluster.cluster import Cluster
from support.cluster.control_plane import Options
from support.host.processes import Process
from support.topology.controllers import LOG, SYSTEM, installed
from support.topology.definitions import install_volcano

COUNT, CHANGES, WRITERS = 12_500, 10, 8
SIZES = {"domain": 18, "block": 18 * 16, "cluster": 18 * 16 * 12}
"""Nodes in a domain of each level, the closest first."""
LEVELS = list(SIZES)
TOPOLOGY = {
    "levels": [{"name": level, "keys": [f"bench.gkm.io/{level}"]} for level in LEVELS],
    "hyperNodes": {"enabled": True},
}
MEMORY = Path(__file__).resolve().parents[1] / "deploy" / "components" / "topology" / "memory.yaml"
Labels = Mapping[str, str]


def run() -> Result:
    """Measure once."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory, _cluster(Path(directory)) as cluster:
        return Result.of([_measured(cluster, Path(directory))])


@contextmanager
def _cluster(directory: Path) -> Iterator[Cluster]:
    control_plane = Alone(directory / "control-plane", Options())
    try:
        control_plane.start()
        cluster = Cluster(directory, control_plane)
        install_volcano(cluster)
        yield cluster
    finally:
        control_plane.close()


def _measured(cluster: Cluster, directory: Path) -> dict[str, float]:
    api = connect(str(cluster.kubeconfig))
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: api.create(NODES, _node(number)), range(COUNT)))
    command = installed(cluster, directory / "gkm", TOPOLOGY)
    written = Reflector(api, HYPERNODES, lambda _old, _new: None)
    written.start()
    began = time.monotonic()
    process = Process.start("gkm-controllers", command, directory / "gkm" / LOG)
    try:
        process.ready(partial(_is_up_to_date, api), "the first tree", LONGEST_SECONDS)
        first = time.monotonic() - began
        changes = [_change(api, process, written, number) for number in random.Random(17).sample(range(COUNT), CHANGES)]
        return {
            "controllers_first_s": first,
            "controllers_change_s": sorted(changes)[CHANGES // 2],
            "controllers_change_worst_s": max(changes),
            "controllers_peak_mib": memory_mib(process.pid, "VmHWM"),
            "controllers_peak_of_limit": memory_mib(process.pid, "VmHWM") / _limit_mib(),
            "controllers_hypernodes": len(list(written.values())),
        }
    finally:
        process.stop()
        written.close()


def _change(api: HttpApi, process: Process, written: Reflector[HyperNodeObject], number: int) -> float:
    """Move a node to the next domain; return the seconds until the HyperNodes show that."""
    labels = _labels(number + SIZES["domain"] if number + SIZES["domain"] < COUNT else 0)
    name = node_name(number)
    wanted = tuple(labels[f"bench.gkm.io/{level}"] for level in LEVELS)
    api.merge(NODES, name, {"metadata": {"labels": labels}})
    began = time.monotonic()

    def is_there() -> bool:
        return _place(written.values(), name) == wanted

    process.ready(is_there, "the node is in its domain", LONGEST_SECONDS)
    return time.monotonic() - began


def _place(hypernodes: Iterable[HyperNodeObject], name: str) -> tuple[str, ...]:
    place = placements(own(hypernodes, LEVELS).values(), LEVELS).places.get(name, ())
    return tuple(found.removeprefix(f"{level}-") for level, found in zip(LEVELS, place, strict=False))


def _labels(number: int) -> Labels:
    return {f"bench.gkm.io/{level}": f"d{number // size:05}" for level, size in SIZES.items()}


def _node(number: int) -> Mapping[str, Any]:
    made = node(node_name(number))
    made["metadata"]["labels"] |= _labels(number)
    return made


def _is_up_to_date(api: HttpApi) -> bool:
    try:
        status = api.get(CONFIGMAPS, "gkm-topology", SYSTEM)["data"]["status"]
    except ApiError:
        return False
    wanted = ("HyperNodesWritten", TopologyReason.UP_TO_DATE)
    return any((one.type, one.reason) == wanted for one in parse_status(status).conditions)


def _limit_mib() -> float:
    (container,) = yaml.safe_load(MEMORY.read_text())["spec"]["template"]["spec"]["containers"]
    return float(container["resources"]["limits"]["memory"].removesuffix("Gi")) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run().figures, indent=1) + "\n")
