"""Kueue's BestFit as a peer: in as many blocks as it takes, the planner never takes more domains."""

from dataclasses import replace

import pytest
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Policy, Request
from hypothesis import given, settings
from support.examples import examples
from support.packing.cases import Case, cases
from support.packing.inventories import RUNS, Run, inventory
from support.packing.kueue import best_fit


def nodes(**slots: int) -> tuple[Node, ...]:
    """Return a node of so many GPUs in every domain, `x1a`: domain a of block 1."""
    return tuple(Node(name, Location("r", "c", name[1], name[2]), gpus, gpus) for name, gpus in slots.items())


TREE = nodes(x1a=4, x1b=2, x2a=3, x2b=3, x2c=3, x3a=2)


def in_domains(tree: tuple[Node, ...], groups: int) -> dict[str, int]:
    return {key.block + key.domain: count for key, count in best_fit(tree, Request(groups, 1, 1)).groups.items()}


def test_the_smallest_block_that_suffices_then_the_largest_domain_and_the_smallest_last() -> None:
    assert in_domains(TREE, 2) == {"3a": 2}
    assert in_domains(TREE, 5) == {"1a": 4, "1b": 1}
    assert in_domains(TREE, 7) == {"2a": 3, "2b": 3, "2c": 1}


def test_where_no_block_suffices_the_largest_then_the_smallest_that_takes_the_rest() -> None:
    assert in_domains(TREE, 11) == {"2a": 3, "2b": 3, "2c": 3, "3a": 2}
    assert best_fit(TREE, Request(17, 1, 1)).complete
    assert not best_fit(TREE, Request(18, 1, 1)).complete


@pytest.mark.heavy
@settings(max_examples=examples(500))
@given(cases())
def test_small_runs_take_no_more_blocks_and_in_as_many_no_more_domains(case: Case) -> None:
    tree, run = case
    groups = run.groups * run.group_gpus
    run = replace(run, gpus=groups, spares=0, may_spread=True, malleability=None, policy=Policy.FEWEST_BLOCKS)
    answer, peer = plan(tree, run, "v1"), best_fit(tree, run)
    assert isinstance(answer, Plan) == peer.complete
    if isinstance(answer, Plan):
        assert (answer.metrics.blocks, answer.metrics.domains) <= (peer.blocks, peer.domains)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_runs_on_busy_clusters_take_no_more_domains_in_as_many_blocks(run: Run) -> None:
    tree, request = inventory(run.inventory), run.request(Policy.FEWEST_BLOCKS)
    answer, peer = plan(tree, request, "v1"), best_fit(tree, request)
    assert isinstance(answer, Plan)
    assert peer.complete
    assert (answer.metrics.blocks, answer.metrics.domains) <= (peer.blocks, peer.domains)
