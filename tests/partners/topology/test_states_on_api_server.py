"""The controllers on a real API server with Volcano's definitions and policies: a watch sees valid states only."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from gkm.api.config import Config, parse
from gkm.kube.client import connect
from gkm.kube.resources import HYPERNODES
from gkm.kube.resources import NODES as KUBE_NODES
from gkm_operator.hypernodes import controller as module
from gkm_operator.hypernodes.controller import TopologyController
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.operator.topology import LEVELS, SYSTEM, TOPOLOGY, node, racks
from support.topology.object_writer import HyperNodeWriter
from support.topology.state_checker import Checker, expected, nodes_of, watched
from support.topology.volcano_rules import violations

NODES = racks(3, 3, 3)


@pytest.fixture(scope="module")
def labeled(schedulers: Cluster) -> Iterator[Cluster]:
    """The cluster with nodes, and without HyperNodes."""
    HyperNodeWriter(schedulers).clear()
    schedulers.apply(namespace(SYSTEM))
    schedulers.apply([node(name, labels) for name, labels in NODES.items()])
    yield schedulers
    schedulers.kubectl("delete", "node", *NODES)
    HyperNodeWriter(schedulers).clear()


@pytest.fixture
def checker(labeled: Cluster) -> Iterator[Checker]:
    with watched(labeled) as made:
        yield made


def config(**more: object) -> Config:
    # From one test to the next, more nodes move than a guard lets pass.
    return parse(json.dumps({"topology": TOPOLOGY | {"guard": {"percent": 100}} | more}))


@contextmanager
def running(cluster: Cluster, settings: Config) -> Iterator[TopologyController]:
    api = connect(str(cluster.kubeconfig))
    controller = TopologyController(
        api, settings, instance="test", namespace=SYSTEM, check_seconds=1.0, calm_seconds=0.05
    )
    controller.work()
    try:
        yield controller
    finally:
        controller.close()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_SECONDS", 0.0)


def test_nodes_that_move_all_the_time_leave_every_state_valid_and_the_last_one_true(
    labeled: Cluster, checker: Checker
) -> None:
    chance = random.Random(17)
    api = connect(str(labeled.kubeconfig))
    labels = {name: dict(own) for name, own in NODES.items()}
    written = HyperNodeWriter(labeled)
    with running(labeled, config()):
        labeled.until(lambda: nodes_of(written.existing()) == expected(labels), "the first tree")
        for _ in range(15):
            for name in chance.sample(sorted(labels), 3):
                block = chance.randrange(3)
                labels[name] = {"block": f"b{block}", "rack": f"r{block}-{chance.randrange(4)}"}
                api.merge(KUBE_NODES, name, {"metadata": {"labels": labels[name]}})
            labeled.until(lambda: nodes_of(written.existing()) == expected(labels), "the next tree", 60)
        version = newest(labeled)
    with running(labeled, config()) as again:
        labeled.until(lambda: again.overview.findings()[2].good, "a new process finds nothing to do")
        assert newest(labeled) == version
    assert checker.states > len(expected(labels))
    assert checker.wrong == []
    for name, own in NODES.items():
        api.merge(KUBE_NODES, name, {"metadata": {"labels": own}})


def test_another_source_gets_its_way_and_is_never_touched(labeled: Cluster, checker: Checker) -> None:
    written = HyperNodeWriter(labeled)
    with running(labeled, config()) as controller:
        labeled.until(lambda: nodes_of(written.existing()) == expected(NODES), "the tree")
        member = {"type": "HyperNode", "selector": {"exactMatch": {"name": "rack-r0-0"}}}
        manual = {"apiVersion": HYPERNODES.api_version, "kind": "HyperNode", "metadata": {"name": "manual"}}
        labeled.apply(manual | {"spec": {"tier": 7, "tierName": "manual", "members": [member]}})
        labeled.until(lambda: "r0-0" not in str(written.existing()["block-b0"].members), "ours to give way")
        assert violations(written.existing()) == []
        labeled.until(lambda: controller.overview.findings()[-1].reason == "HyperNodeConflict", "the conflict")
        assert labeled.get("hypernode", "manual")["metadata"]["generation"] == 1
        labeled.kubectl("delete", "hypernode", "manual")
        labeled.until(lambda: nodes_of(written.existing()) == expected(NODES), "the whole tree again")
    # The one write that made the set invalid was not ours.
    assert ["rack-r0-0 already has a parent" in one for one in checker.wrong] == [True]


def test_labels_and_topologies_of_both_schedulers_are_written(labeled: Cluster) -> None:
    settings = config(hyperNodes={"enabled": False}, nodeLabels=True, kueue="gkm-made", kai="gkm-made")
    keys = ["level.gkm.io/block", "level.gkm.io/rack", "kubernetes.io/hostname"]
    with running(labeled, settings):
        for kind in ("topologies.kueue.x-k8s.io", "topologies.kai.scheduler"):
            labeled.until(partial(labeled.exists, kind, "gkm-made"), kind)
            assert labeled.get(kind, "gkm-made")["spec"]["levels"] == [{"nodeLabel": key} for key in keys]
        labeled.until(lambda: all(level_of(labeled, name) == own for name, own in NODES.items()), "the labels", 60)


def level_of(cluster: Cluster, name: str) -> dict[str, str]:
    labels = cluster.get("node", name)["metadata"]["labels"]
    return {level: labels.get(f"level.gkm.io/{level}", "") for level in LEVELS}


def newest(cluster: Cluster) -> dict[str, int]:
    """The generations of all HyperNodes."""
    found = cluster.objects.every("hypernode")
    return {one["metadata"]["name"]: one["metadata"]["generation"] for one in found}
