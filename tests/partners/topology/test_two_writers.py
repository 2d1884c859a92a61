"""GKM's controllers and a second writer of HyperNodes on one API server: who owns which objects, and what is told."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from gkm.api.config import parse
from gkm.api.topology_status import STATUS_KEY
from gkm.kube.client import connect
from gkm_operator.hypernodes.controller import TopologyController
from support.cluster.cluster import Cluster
from support.cluster.gkm_objects import namespace
from support.operator.topology import SOURCE, SYSTEM, TOPOLOGY, node, racks
from support.topology.object_writer import HyperNodeWriter
from support.topology.other_writer import OtherWriter
from support.topology.state_checker import expected, nodes_of
from support.topology.volcano_rules import violations

NODES = racks(1, 2, 2)
THEIRS = {"hypernode-net-tier1-abcde": ["elsewhere-0", "elsewhere-1"], "hypernode-net-tier1-fghij": ["elsewhere-2"]}


@pytest.fixture
def volcano(schedulers: Cluster) -> Iterator[Cluster]:
    """The cluster with nodes, and without HyperNodes."""
    HyperNodeWriter(schedulers).clear()
    schedulers.apply(namespace(SYSTEM))
    schedulers.apply([node(name, labels) for name, labels in NODES.items()])
    yield schedulers
    schedulers.kubectl("delete", "node", *NODES)
    HyperNodeWriter(schedulers).clear()


@contextmanager
def controllers(cluster: Cluster) -> Iterator[None]:
    """Run the controllers until the block ends."""
    api = connect(str(cluster.kubeconfig))
    config = parse(json.dumps({"topology": TOPOLOGY | {"guard": {"percent": 100}}}))
    controller = TopologyController(
        api, config, instance="test", namespace=SYSTEM, check_seconds=1.0, calm_seconds=0.05
    )
    controller.work()
    try:
        yield
    finally:
        controller.close()


def until_written(cluster: Cluster) -> None:
    cluster.until(lambda: ours(cluster) == expected(NODES), "the tree")


def ours(cluster: Cluster) -> dict[str, set[str]]:
    """Return the nodes of GKM's HyperNodes."""
    names = OtherWriter(cluster, "gkm").names()
    found = nodes_of(HyperNodeWriter(cluster).existing())
    return {name: found[name] for name in names}


def no_conflicts(cluster: Cluster) -> tuple[str, str]:
    """Return status and message of the condition NoConflicts; empty before the first report."""
    stored = cluster.objects.get("configmap", "gkm-topology", SYSTEM)
    conditions = json.loads(stored.get("data", {}).get(STATUS_KEY, "{}")).get("conditions", [])
    return next(((one["status"], one["message"]) for one in conditions if one["type"] == "NoConflicts"), ("", ""))


def test_two_writers_with_trees_of_their_own_leave_each_other_alone(volcano: Cluster) -> None:
    other, written = OtherWriter(volcano, "label"), HyperNodeWriter(volcano)
    with controllers(volcano):
        until_written(volcano)
        for _ in range(3):
            other.round(THEIRS)
        theirs = {name: one for name, one in written.existing().items() if name in THEIRS}
        versions = written.versions()
        told = ("True", "HyperNodes beside GKM's: 2 of label")
        volcano.until(lambda: no_conflicts(volcano) == told, "both writers in the condition")
        other.round({})
        volcano.until(lambda: no_conflicts(volcano) == ("True", ""), "one writer in the condition")
        assert theirs.keys() == THEIRS.keys()
        assert {name: version for name, version in versions.items() if name not in THEIRS} == written.versions()
        assert ours(volcano) == expected(NODES)
    events = volcano.objects.every("events.events.k8s.io", SYSTEM)
    assert "HyperNodes beside GKM's: 2 of label" in {event.get("note") for event in events}


def test_the_second_writer_of_a_name_leaves_it_whoever_was_first(volcano: Cluster) -> None:
    other = OtherWriter(volcano, "label")
    other.round({"rack-r0-0": ["elsewhere-0"]})
    first = volcano.get("hypernode", "rack-r0-0")
    with controllers(volcano):
        volcano.until(lambda: no_conflicts(volcano)[0] == "False", "the conflict")
        other.round({"rack-r0-0": ["elsewhere-0"], "rack-r0-1": ["elsewhere-1"]})
        assert other.taken == {"rack-r0-1"}
        assert no_conflicts(volcano)[1].startswith(
            "NameTaken 1; HyperNodes beside GKM's: 1 of label: HyperNode rack-r0-0 is not GKM's"
        )
        assert volcano.get("hypernode", "rack-r0-0")["metadata"]["uid"] == first["metadata"]["uid"]
        assert violations(HyperNodeWriter(volcano).existing()) == []


def test_a_writer_that_undoes_each_repair_wins_and_is_reported(volcano: Cluster) -> None:
    with controllers(volcano):
        until_written(volcano)
        for tier in (5, 6):
            patch = json.dumps({"spec": {"tier": tier}})
            volcano.kubectl("patch", "hypernode", "block-b0", "--type=merge", f"--patch={patch}")
            if tier == 5:  # the first change is repaired
                volcano.until(lambda: volcano.get("hypernode", "block-b0")["spec"]["tier"] == 2, "the repair")
        volcano.until(lambda: "ChangedByOthers 1" in no_conflicts(volcano)[1], "the second writer to be reported")
        found = volcano.get("hypernode", "block-b0")
        assert (found["spec"]["tier"], found["metadata"]["labels"][SOURCE]) == (6, "gkm")
        whole = volcano.kubectl("get", "hypernode", "block-b0", "--show-managed-fields", "--output=yaml")
        assert "manager: kubectl-patch" in whole
