"""Kueue places Jobs by the Topology and the labels of Nodes that our controllers write. Pods fill a node each."""

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from support.topology.kueue_cluster import KueueCluster

pytestmark = pytest.mark.heavy

RACK, BLOCK = "level.gkm.io/rack", "level.gkm.io/block"
Places = Mapping[str, tuple[str, str]]
PLACES: Places = {
    "node-0": ("r1", "b1"),
    "node-1": ("r1", "b1"),
    "node-2": ("r2", "b1"),
    "node-3": ("r2", "b1"),
    "node-4": ("r3", "b2"),
    "node-5": ("", ""),
}
OWN = "a value that no other node has"


def place(kueued: KueueCluster, places: Places, *, quarantined: frozenset[str] = frozenset()) -> None:
    """Label the nodes with racks and blocks, and wait until the controllers have written their levels."""
    for node, (rack, block) in places.items():
        kueued.label(node, rack=rack, block=block)
    wanted = {node: ("", "") if node in quarantined else (one[0] or OWN, one[1] or OWN) for node, one in places.items()}
    kueued.cluster.until(lambda: levels(kueued) == wanted, f"levels of the nodes: {wanted}")


def levels(kueued: KueueCluster) -> Places:
    """Return the levels that the nodes have as labels."""
    racks, blocks = (shown(kueued.labels(key)) for key in (RACK, BLOCK))
    return {node: (racks[node], blocks[node]) for node in racks}


def shown(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of nodes; OWN for those that GKM made for a single node."""
    counts = Counter(values.values())
    return {node: OWN if value.startswith("node-") and counts[value] == 1 else value for node, value in values.items()}


@pytest.fixture
def placed(kueued: KueueCluster) -> Iterator[KueueCluster]:
    place(kueued, PLACES)
    yield kueued
    assert kueued.cluster.objects.every("pods", "default") == []


def test_pods_of_a_job_lie_in_one_rack(placed: KueueCluster) -> None:
    with placed.job(2, RACK) as first, placed.job(2, RACK) as second:
        racks = [placed.nodes_of(first, 2), placed.nodes_of(second, 2)]
    assert sorted(racks) == [["node-0", "node-1"], ["node-2", "node-3"]]


def test_a_job_larger_than_every_rack_waits_and_fits_into_a_block(placed: KueueCluster) -> None:
    with placed.job(3, RACK) as job:
        assert "allows to fit only 2 out of 3 pod(s)" in placed.refusal(job)
    with placed.job(4, BLOCK) as job:
        assert placed.nodes_of(job, 4) == ["node-0", "node-1", "node-2", "node-3"]
    with placed.job(5, BLOCK) as job:
        assert "allows to fit only 4 out of 5 pod(s)" in placed.refusal(job)


def test_a_job_that_waits_starts_when_a_node_moves_into_the_rack(placed: KueueCluster) -> None:
    with placed.job(3, RACK) as job:
        assert "allows to fit only 2 out of 3 pod(s)" in placed.refusal(job)
        place(placed, {**PLACES, "node-4": ("r1", "b1")})
        assert placed.nodes_of(job, 3) == ["node-0", "node-1", "node-4"]


def test_a_rack_that_lost_a_node_gets_no_job_of_its_old_size(placed: KueueCluster) -> None:
    place(placed, {**PLACES, "node-1": ("r2", "b1")})
    with placed.job(3, RACK) as job:
        assert placed.nodes_of(job, 3) == ["node-1", "node-2", "node-3"]
        with placed.job(2, RACK) as other:
            assert "allows to fit only 1 out of 2 pod(s)" in placed.refusal(other)


def test_a_node_without_a_rack_is_a_rack_of_its_own(placed: KueueCluster) -> None:
    with placed.job(4, BLOCK) as block, placed.job(1, RACK) as first, placed.job(1, RACK) as second:
        assert placed.nodes_of(block, 4) == ["node-0", "node-1", "node-2", "node-3"]
        assert sorted(placed.nodes_of(first, 1) + placed.nodes_of(second, 1)) == ["node-4", "node-5"]


def test_a_quarantined_node_gets_no_job(placed: KueueCluster) -> None:
    """A rack that lies in two blocks: only the labels of its nodes are wrong, but no scheduler can know which."""
    contradictory = frozenset({"node-2", "node-3"})
    place(placed, {**PLACES, "node-3": ("r2", "b2")}, quarantined=contradictory)
    with placed.job(2, RACK) as job, placed.job(1, RACK) as first, placed.job(1, RACK) as second:
        assert placed.nodes_of(job, 2) == ["node-0", "node-1"]
        assert sorted(placed.nodes_of(first, 1) + placed.nodes_of(second, 1)) == ["node-4", "node-5"]
        with placed.job(1, RACK) as third:
            assert "doesn't allow to fit any of 1 pod(s)" in placed.refusal(third)


def test_the_affinity_of_a_plan_decides_where_kueue_assigns(placed: KueueCluster) -> None:
    """By itself Kueue fills one rack; a plan over two racks of the block is followed all the same."""
    with placed.job(2, BLOCK, plan=["node-1", "node-2"]) as job:
        assert placed.nodes_of(job, 2) == ["node-1", "node-2"]


def test_a_plan_that_is_wider_than_the_requested_domain_waits(placed: KueueCluster) -> None:
    with placed.job(2, RACK, plan=["node-1", "node-2"]) as job:
        assert "allows to fit only 1 out of 2 pod(s)" in placed.refusal(job)
