"""A process that builds the tree and the snapshot of a large cluster, changes nodes of it, and prints figures as JSON.

Arguments: the list of nodes, the output of ibnetdiscover, a seed, and the number of changes. Times are in
seconds, of the wall and of the CPU; the CPU time of a busy machine is the part that is ours.
"""

import gc
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

from gkm.api.topology_settings import Topology
from gkm.topology import lists
from gkm.topology.fabrics import ibnetdiscover, infiniband
from gkm.topology.hypernodes import HyperNode
from gkm.topology.labels import LabelPlaces, label_placements
from gkm.topology.lists import BLOCK_BYTES
from gkm.topology.nodes import Node
from gkm.topology.placements import Placements
from gkm.topology.trees.merge import Snapshot, build_tree
from gkm.topology.trees.tree import Tree
from gkm.topology.trees.volcano import volcano
from gkm.topology.trees.write_order import ordered_writes
from msgspec import structs

T = TypeVar("T")
SETTINGS = Topology()
BLOCK = "topology.gkm.io/block"
_CONTRADICTING = 2
"""The last kind of change."""
_WRONG = 10
"""Nodes with a wrong label at a time."""


class Clock:
    """Seconds by part."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Return the result of work, and add its time."""
        began, used = time.perf_counter(), time.process_time()
        result = work()
        self.wall[name] = time.perf_counter() - began
        self.cpu[name] = time.process_time() - used
        return result


def main() -> None:
    """Measure, and print the figures."""
    nodes_file, survey_file, seed, changes = sys.argv[1:]
    clock, order = Clock(), random.Random(int(seed))
    before = _resident_mib()
    nodes = list(lists.parse_nodes(_blocks(Path(nodes_file))).nodes)
    gc.collect()
    built = clock.timed("build", lambda: _snapshot(nodes))
    gc.collect()
    resident = _resident_mib() - before
    apart = [_labeled(node, {**node.labels, "fabric.domain": node.name}) for node in nodes]
    clock.timed("apart", lambda: _snapshot(apart))
    hypernodes = clock.timed("tree", lambda: _hypernodes(nodes))
    rebuilt = _hypernodes(order.sample(nodes, len(nodes)))
    updates, after, same = _updates(nodes, built, order, int(changes))
    moved = clock.timed("writes", lambda: ordered_writes(hypernodes, _hypernodes(after)))
    text = Path(survey_file).read_bytes()
    subnet = clock.timed("ibnetdiscover", lambda: ibnetdiscover.parse(text))
    hosts = {port.host for port in subnet.ports}
    found = clock.timed("groups", lambda: infiniband.from_subnets([subnet], [], hosts))
    print(
        json.dumps(
            {
                "wall": clock.wall,
                "cpu": clock.cpu,
                "update_ms": 1000 * median(updates[0] + updates[1]),
                "update_contradicting_ms": 1000 * median(updates[_CONTRADICTING]),
                "update_p99_ms": 1000 * quantiles([each for kind in updates for each in kind], n=100)[-1],
                "rss_mib_per_1000_nodes": resident * 1000 / len(nodes),
                "steady_writes": len(ordered_writes(hypernodes, rebuilt)),
                "writes": len(moved),
                "same_version": same,
                "hypernodes": len(hypernodes),
                "hosts": sum(each.tier == 1 and len(each.members) for each in found.hypernodes),
            }
        )
    )


def _hypernodes(nodes: Iterable[Node]) -> dict[str, HyperNode]:
    tree = build_tree([("labels", label_placements(nodes, SETTINGS))], SETTINGS)
    return dict(volcano(tree, SETTINGS).hypernodes)


def _snapshot(nodes: Iterable[Node]) -> Snapshot:
    by_name = {node.name: node for node in nodes}
    found = Snapshot.start(SETTINGS).changed(by_name, [("labels", label_placements(by_name.values(), SETTINGS))])
    _read(found)
    return found


def _read(found: Snapshot, before: Tree | None = None) -> None:
    assert found.tree.nodes
    assert found.tree is before or found.tree.version()


def _updates(
    nodes: list[Node], built: Snapshot, order: random.Random, changes: int
) -> tuple[list[list[float]], list[Node], bool]:
    """Return the CPU seconds of changes by kind, the nodes after all, and whether a new snapshot of these is the same.

    A change is one of health, of the place of a node, or of its block only, which quarantines its domain or
    brings it back. It ends when tree and version are there.
    """
    by_name = {node.name: node for node in nodes}
    places = dict(label_placements(nodes, SETTINGS).places)
    reader = LabelPlaces(SETTINGS)
    now: Snapshot = built
    wrong: list[Node] = []
    times: list[list[float]] = [[] for _ in range(_CONTRADICTING + 1)]
    for number in range(changes):
        node, other = order.sample(list(by_name.values()), 2)
        match number % len(times):
            case 0:
                node = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
            case 1:
                node = _labeled(node, dict(other.labels))
            case _ if len(wrong) > _WRONG:
                node = _labeled(by_name[wrong[0].name], dict(wrong.pop(0).labels))
            case _:
                wrong.append(node)
                node = _labeled(node, {**node.labels, BLOCK: other.labels[BLOCK]})
        began = time.process_time()
        by_name = {**by_name, node.name: node}
        place = reader.of(node)
        if isinstance(place, tuple) and place != places[node.name]:
            places = {**places, node.name: place}
        before, now = now.tree, now.changed(by_name, [("labels", Placements(places))])
        _read(now, before)
        times[number % len(times)].append(time.process_time() - began)
    after = list(by_name.values())
    return times, after, _snapshot(after).tree.version() == now.tree.version()


def _labeled(node: Node, labels: dict[str, str]) -> Node:
    return structs.replace(node, metadata=structs.replace(node.metadata, labels=labels))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


if __name__ == "__main__":
    main()
