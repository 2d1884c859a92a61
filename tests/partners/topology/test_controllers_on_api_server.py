"""The controllers beside the definitions and policies of Volcano, Kueue and KAI: from labels of Nodes to all forms."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from support.cluster import kwok
from support.cluster.cluster import Cluster
from support.topology.controllers import controllers
from support.topology.object_writer import HyperNodeWriter
from support.topology.volcano_rules import violations

TOPOLOGY = {
    "levels": [{"name": "rack", "keys": ["rack"]}, {"name": "block", "keys": ["block"]}],
    "hyperNodes": {"enabled": True},
    "kueue": "network",
    "kai": "network",
    "nodeLabels": True,
}
LABELS = {
    "node-0": {"rack": "r1", "block": "b1"},
    "node-1": {"rack": "r1", "block": "b1"},
    "node-2": {"rack": "r2", "block": "b1"},
    "node-3": {"block": "b2"},
}
LEVELS = ["level.gkm.io/block", "level.gkm.io/rack", "kubernetes.io/hostname"]
Tree = Mapping[str, tuple[int, set[str]]]


@pytest.fixture
def written(schedulers: Cluster, tmp_path: Path) -> Iterator[HyperNodeWriter]:
    """The HyperNodes of a cluster with the controllers, and with Nodes with GPUs, which need no kubelet."""
    found = HyperNodeWriter(schedulers)
    found.clear()
    schedulers.apply([kwok.node(name, gpus=8, labels=labels.items()) for name, labels in LABELS.items()])
    with controllers(schedulers, tmp_path / "gkm", TOPOLOGY):
        yield found
    schedulers.kubectl("delete", "nodes", *LABELS)
    found.clear()


def test_labels_of_nodes_become_all_forms_and_a_moved_node_changes_two(
    schedulers: Cluster, written: HyperNodeWriter
) -> None:
    before: Tree = {
        "rack-r1": (1, {"node-0", "node-1"}),
        "rack-r2": (1, {"node-2"}),
        "block-b1": (2, {"rack-r1", "rack-r2"}),
        "block-b2": (2, {"node-3"}),
    }
    until_written(schedulers, written, before)
    for kind in ("topologies.kueue.x-k8s.io", "topologies.kai.scheduler"):
        schedulers.until(partial(schedulers.exists, kind, "network"), f"{kind} to be there")
        assert [level["nodeLabel"] for level in schedulers.get(kind, "network")["spec"]["levels"]] == LEVELS
    schedulers.until(lambda: levels(schedulers, "node-2") == ["b1", "r2"], "the labels of the levels")

    versions = written.versions()
    schedulers.kubectl("label", "node", "node-1", "--overwrite", "rack=r2")
    until_written(schedulers, written, {**before, "rack-r1": (1, {"node-0"}), "rack-r2": (1, {"node-1", "node-2"})})
    schedulers.until(lambda: levels(schedulers, "node-1") == ["b1", "r2"], "the labels of the moved node")
    changed = {name for name, version in written.versions().items() if versions[name] != version}
    assert changed == {"rack-r1", "rack-r2"}


def until_written(cluster: Cluster, written: HyperNodeWriter, wanted: Tree) -> None:
    """Wait for these HyperNodes; what is there until then must be valid too."""

    def probe() -> bool:
        found = written.existing()
        assert violations(found) == []
        seen = {name: (one.tier, {member.name for member in one.members}) for name, one in found.items()}
        return seen == wanted

    cluster.until(probe, f"the HyperNodes {sorted(wanted)}")


def levels(cluster: Cluster, node: str) -> list[str]:
    labels = cluster.get("node", node)["metadata"]["labels"]
    return [labels.get(key, "") for key in LEVELS[:2]]
