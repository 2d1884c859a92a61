"""The controllers as a process, killed between writes on a real API server with Volcano's definitions and policies.

`GKM_KILLS=60 GKM_KILL_SEED=7 pytest -s tests/partners/topology/test_killed_on_api_server.py`: more of them, others.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from gkm.api.topology_status import TopologyStatus, parse_status
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from gkm.kube.resources import NODES as KUBE_NODES
from support.cluster.cluster import Cluster
from support.host.processes import Process
from support.operator.topology import LEVELS, SYSTEM, TOPOLOGY, node, racks
from support.topology.controllers import HURRIED, LOG, installed
from support.topology.object_writer import HyperNodeWriter
from support.topology.state_checker import Checker, expected, nodes_of, watched

KILLS = int(os.environ.get("GKM_KILLS", "12"))
SEED = int(os.environ.get("GKM_KILL_SEED", "17"))
pytestmark = pytest.mark.timeout(300 + 30 * KILLS)
NODES = racks(3, 3, 3)
LOST = sorted(NODES)[: len(NODES) * 3 // 10 + 1]
# The labels are lost one by one, and a tree may come between any two of them: one loss must do.
WATCHFUL = TOPOLOGY | {"guard": TOPOLOGY["guard"] | {"percent": 0, "minimum": 1}}


@dataclass
class Lives:
    """The processes, one after another, and the nodes that move meanwhile."""

    cluster: Cluster
    checker: Checker
    command: Sequence[str]
    log: Path
    labels: dict[str, dict[str, str]]
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.api = connect(str(self.cluster.kubeconfig))

    def begin(self) -> Process:
        # One identity: the lease of a killed process is its successor's at once.
        return Process.start("gkm-controllers", [*self.command, "--identity=one"], self.log)

    def is_written(self) -> bool:
        with self.checker.lock:
            return nodes_of(self.checker.now) == expected(self.labels)

    def has_written(self, states: int) -> bool:
        """Whether there were so many states, or an invalid one, or nothing is to be written."""
        return self.checker.states >= states or bool(self.checker.wrong) or self.is_written()

    def label(self, name: str, **labels: str | None) -> None:
        self.api.merge(KUBE_NODES, name, {"metadata": {"labels": labels}})

    def two_nodes_swap_racks(self) -> None:
        one, other = self.chance.sample(sorted(self.labels), 2)
        self.labels[one], self.labels[other] = self.labels[other], self.labels[one]
        for name in (one, other):
            self.label(name, **self.labels[name])

    def a_node_flaps(self) -> None:
        """It has no labels, then is gone, and comes back elsewhere."""
        name = self.chance.choice(sorted(self.labels))
        self.label(name, rack=None, block=None)
        self.api.delete(KUBE_NODES, name)
        block = self.chance.randrange(3)
        self.labels[name] = {"block": f"b{block}", "rack": f"r{block}-{self.chance.randrange(3)}"}
        self.cluster.apply(node(name, self.labels[name]))

    def a_rack_has_another_name(self) -> None:
        """And is in another block."""
        rack = self.chance.choice(sorted({own["rack"] for own in self.labels.values()}))
        new = {"block": f"b{self.chance.randrange(3)}", "rack": f"r{self.chance.randrange(1000)}"}
        for name in [name for name, own in self.labels.items() if own["rack"] == rack]:
            self.labels[name] = new
            self.label(name, **new)

    def status(self) -> TopologyStatus:
        try:
            data = self.api.get(CONFIGMAPS, "gkm-topology", SYSTEM)["data"]
        except ApiError:
            return TopologyStatus()
        return parse_status(data["status"])


@pytest.fixture
def lives(request: pytest.FixtureRequest, schedulers: Cluster, tmp_path: Path) -> Iterator[Lives]:
    """HURRIED controllers for TOPOLOGY, or for the one of the test."""
    written = HyperNodeWriter(schedulers)
    written.clear()
    command = installed(schedulers, tmp_path / "gkm", getattr(request, "param", TOPOLOGY), HURRIED)
    schedulers.apply([node(name, labels) for name, labels in NODES.items()])
    with watched(schedulers) as checker:
        labels = {name: dict(own) for name, own in NODES.items()}
        yield Lives(schedulers, checker, command, tmp_path / "gkm" / LOG, labels, random.Random(SEED))
    schedulers.kubectl("delete", "node", *NODES)
    written.clear()


def test_killed_between_any_two_writes_the_tree_is_valid_at_every_moment(lives: Lives) -> None:
    changes: list[Callable[[], None]] = [lives.two_nodes_swap_racks, lives.a_node_flaps, lives.a_rack_has_another_name]
    checker, counts = lives.checker, lives.counts
    middle = "kills in the middle of a pass"
    for number in range(3 * KILLS):
        # A busy machine shows a write when the pass has ended: then there are further kills.
        if number >= KILLS and counts[middle] > KILLS // 2:
            break
        if number:
            changes[number % len(changes)]()
        before = checker.states
        process = lives.begin()
        target = before + lives.chance.randint(1, 4)
        try:
            process.ready(partial(lives.has_written, target), "it writes", 90)
        finally:
            process.kill()
        assert checker.wrong == []
        counts["kills"] += 1
        counts[middle] += not lives.is_written()
    process = lives.begin()
    try:
        process.ready(lives.is_written, "the last tree", 90)
    finally:
        process.stop()
    counts["versions checked"] = checker.states
    print(f"seed {SEED}:", json.dumps(counts))  # noqa: T201 -- shown
    assert checker.wrong == []
    assert checker.missed() == []
    assert counts["versions checked"] > KILLS
    assert counts[middle] > KILLS // 2


@pytest.mark.parametrize("lives", [WATCHFUL], indirect=True, ids=["watchful"])
def test_thirty_percent_of_lost_labels_and_a_kill_meanwhile_change_nothing(lives: Lives) -> None:
    def reports(kind: str, reason: str) -> bool:
        return any((one.type, one.reason) == (kind, reason) for one in lives.status().conditions)

    process = lives.begin()
    try:
        process.ready(lambda: lives.is_written() and reports("HyperNodesWritten", "UpToDate"), "the first tree", 90)
        states = lives.checker.states
        for name in LOST:
            lives.label(name, **dict.fromkeys(LEVELS))
        process.ready(lambda: reports("TreeApproved", "TopologyGuardTripped"), "the guard", 60)
        process.kill()
        process = lives.begin()
        process.ready(lambda: reports("HyperNodesWritten", "NotChecked"), "the next process compares nothing", 120)
        for name in LOST:
            lives.label(name, **lives.labels[name])
        process.ready(lambda: reports("HyperNodesWritten", "UpToDate"), "the labels are back", 60)
    finally:
        process.stop()
    assert lives.checker.states == states
    assert lives.checker.wrong == []
