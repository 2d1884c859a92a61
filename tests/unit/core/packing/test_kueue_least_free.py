"""Kueue's least free capacity as a peer: what it does by hand, and that the planner never costs more."""

import pytest
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Policy, Request
from support.packing.brute import priced
from support.packing.inventories import RUNS, Run, inventory
from support.packing.kueue import best_fit, least_free


def nodes(**slots: int) -> tuple[Node, ...]:
    """Return a node of so many GPUs in every domain, `x1a`: domain a of block 1."""
    return tuple(Node(name, Location("r", "c", name[1], name[2]), gpus, gpus) for name, gpus in slots.items())


TREE = nodes(x1a=4, x1b=2, x2a=3, x2b=3, x2c=3, x3a=2)


def in_domains(groups: int) -> dict[str, int]:
    return {key.block + key.domain: count for key, count in least_free(TREE, Request(groups, 1, 1)).groups.items()}


def test_the_smallest_block_that_suffices_and_of_its_domains_the_smallest_first() -> None:
    assert in_domains(2) == {"3a": 2}
    assert in_domains(4) == {"1b": 2, "1a": 2}
    assert in_domains(5) == {"1b": 2, "1a": 3}


def test_where_no_block_suffices_the_smallest_first_and_of_their_domains_the_smallest_first() -> None:
    assert in_domains(10) == {"1b": 2, "3a": 2, "2a": 3, "2b": 3}
    assert least_free(TREE, Request(17, 1, 1)).complete
    assert not least_free(TREE, Request(18, 1, 1)).complete


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_runs_on_busy_clusters_cost_no_more_than_by_either_rule(run: Run) -> None:
    tree, request = inventory(run.inventory), run.request(Policy.FEWEST_BLOCKS)
    answer = plan(tree, request, "v1")
    assert isinstance(answer, Plan)
    ours = priced(tree, answer).cost.by(Policy.FEWEST_BLOCKS)
    for peer in (least_free(tree, request), best_fit(tree, request)):
        assert peer.complete
        free = sum(node.free for node in tree if node.place in peer.groups)
        assert ours <= (0, peer.blocks, peer.domains, free)
