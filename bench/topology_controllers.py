"""The controllers as a process beside a real API server with many Nodes as large as those of kubelets.

`controllers_first_s` is from their start to the last HyperNode of the first tree, `controllers_change_s` from the
answer to a new label of a node to the last write of it, and `controllers_peak_mib` the most memory of the process,
without children; `controllers_peak_of_limit` is its share of its container's. The API server and etcd are on the same
machine.
"""

import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from fleet_objects import node, node_name
from fleet_place import Alone
from fleet_process import LONGEST_SECONDS
from gkm.api.hypernodes import HyperNodeObject
from gkm.api.topology_status import TopologyReason, parse_status
from gkm.kube.client import HttpApi, connect
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CONFIGMAPS, HYPERNODES, NODES
from gkm.topology.placements import placements
from gkm.topology.trees.hypernode_objects import own
from process_cost import memory_mib
from support.chart.deploy_files import rendered
from support.cluster.cluster import Cluster
from support.cluster.control_plane import Options
from support.host.processes import Process
from support.operator.deployment import MAIN
from support.topology.controllers import LOG, SYSTEM, installed
from support.topology.definitions import install_volcano

WRITERS = 8
SIZES = {"domain": 18, "block": 18 * 16, "cluster": 18 * 16 * 12}
"""Nodes in a domain of each level, the closest first."""
LEVELS = list(SIZES)
TOPOLOGY = {
    "levels": [{"name": level, "keys": [f"bench.gkm.io/{level}"]} for level in LEVELS],
    "hyperNodes": {"enabled": True},
}
MANIFEST = Path("base", "controllers.yaml")
Labels = Mapping[str, str]


@dataclass(frozen=True)
class ControllersSize:
    """How many Nodes there are, and how many of them move to another domain.

    `main` is the program of the controllers: one that waits less makes `controllers_first_s` meaningless.
    """

    nodes: int
    changes: int
    main: tuple[str, ...] = MAIN


def measured(size: ControllersSize) -> dict[str, float]:
    """Measure once."""
    with tempfile.TemporaryDirectory(prefix="gkm-bench-") as directory, _cluster(Path(directory)) as cluster:
        return _figures(size, cluster, Path(directory))


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


def _figures(size: ControllersSize, cluster: Cluster, directory: Path) -> dict[str, float]:
    api = connect(str(cluster.kubeconfig))
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda number: api.create(NODES, _node(number)), range(size.nodes)))
    command = installed(cluster, directory / "gkm", TOPOLOGY, size.main)
    written = Reflector(api, HYPERNODES, lambda _old, _new: None)
    written.start()
    began = time.monotonic()
    process = Process.start("gkm-controllers", command, directory / "gkm" / LOG)
    try:
        process.ready(partial(_is_up_to_date, api), "the first tree", LONGEST_SECONDS)
        first = time.monotonic() - began
        chosen = random.Random(17).sample(range(size.nodes), size.changes)
        changes = [_change(api, process, written, number, size.nodes) for number in chosen]
        return {
            "controllers_first_s": first,
            "controllers_change_s": sorted(changes)[size.changes // 2],
            "controllers_change_worst_s": max(changes),
            "controllers_peak_mib": memory_mib(process.pid, "VmHWM"),
            "controllers_peak_of_limit": memory_mib(process.pid, "VmHWM") / _limit_mib(),
            "controllers_hypernodes": float(len(list(written.values()))),
        }
    finally:
        process.stop()
        written.close()


def _change(api: HttpApi, process: Process, written: Reflector[HyperNodeObject], number: int, count: int) -> float:
    """Move a node to the next domain; return the seconds until the HyperNodes show that."""
    labels = _labels(number + SIZES["domain"] if number + SIZES["domain"] < count else 0)
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
    """Return the memory limit of the controllers that ships."""
    (deployment,) = (
        one
        for one in yaml.load_all((rendered() / MANIFEST).read_text(), yaml.CSafeLoader)
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "gkm-controllers")
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    limit: str = container["resources"]["limits"]["memory"]
    if not limit.endswith("Mi"):
        raise ValueError(f"{MANIFEST}: a memory limit of {limit}, not in Mi")
    return float(limit.removesuffix("Mi"))
