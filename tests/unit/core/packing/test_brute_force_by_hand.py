"""What trying everything finds in cases that a person can work out on paper."""

from dataclasses import replace

import pytest
from gkm.packing.values import Ceiling, Location, Malleability, Node, Policy, Request
from support.packing.brute import best, fits, largest_groups, legal_sizes
from support.packing.costs import Cost


def place(name: str) -> Location:
    """Return a domain by its name, "2b": domain b of block 2."""
    return Location("r", "c", name[0], name[1])


def nodes(**free: tuple[int, ...]) -> tuple[Node, ...]:
    """Return nodes by the name of their domain, `x1a=(4, 4)`: two with four free GPUs in domain a of block 1."""
    return tuple(
        Node(f"{name}{number}", place(name[1:]), gpus, gpus)
        for name, sizes in free.items()
        for number, gpus in enumerate(sizes)
    )


# Three groups of 4: in 1a and 2a with nothing left, or all in block 1 with 1 GPU left, or in one domain with 3 left.
TREE = nodes(x1a=(4, 4), x1b=(5,), x2a=(4,), x3a=(4, 4, 7))
THREE = Request(gpus=12, pod_gpus=1, group_gpus=4)


@pytest.mark.parametrize(
    ("policy", "cost", "domains"),
    [
        (Policy.FEWEST_DOMAINS, Cost(elsewhere=0, domains=1, free=15, blocks=1), ["3a"]),
        (Policy.FEWEST_BLOCKS, Cost(elsewhere=0, domains=1, free=15, blocks=1), ["3a"]),
        (Policy.LEAST_WASTE, Cost(elsewhere=0, domains=2, free=12, blocks=2), ["1a", "2a"]),
    ],
)
def test_policies_differ_in_what_they_compare_first(policy: Policy, cost: Cost, domains: list[str]) -> None:
    found = best(TREE, replace(THREE, policy=policy))
    assert found is not None
    assert (found.cost, [key.block + key.domain for key in found.domains]) == (cost, domains)


def test_blocks_before_domains() -> None:
    tree = nodes(x1a=(8,), x2a=(8,), x3a=(4,), x3b=(4,), x3c=(4,), x3d=(4,))
    run = Request(gpus=16, pod_gpus=4, group_gpus=4)
    one, other = best(tree, run), best(tree, replace(run, policy=Policy.FEWEST_BLOCKS))
    assert one is not None
    assert other is not None
    assert (one.cost.domains, one.cost.blocks) == (2, 2)
    assert (other.cost.domains, other.cost.blocks) == (4, 1)


def test_of_equals_the_smallest_keys() -> None:
    found = best(nodes(x2a=(4,), x1b=(4,), x1a=(4,)), Request(gpus=8, pod_gpus=4, group_gpus=4))
    assert found is not None
    assert found.domains == (place("1a"), place("1b"))


def test_pods_are_whole_so_gpus_alone_do_not_make_a_group_fit() -> None:
    run = Request(gpus=4, pod_gpus=2, group_gpus=4)
    assert not fits(nodes(x1a=(3, 1)), run)
    assert fits(nodes(x1a=(3, 2)), run)


def test_a_short_last_group_fits_where_a_whole_one_does_not() -> None:
    tree = nodes(x1a=(4,), x1b=(2,))
    assert fits(tree, Request(gpus=6, pod_gpus=2, group_gpus=4))
    assert not fits(tree, Request(gpus=8, pod_gpus=2, group_gpus=4))
    assert largest_groups(tree, Request(gpus=8, pod_gpus=2, group_gpus=4)) == 1


def test_a_group_keeps_all_its_spares_or_counts_as_one_whose_spares_are_elsewhere() -> None:
    run = Request(gpus=4, pod_gpus=1, group_gpus=2, spares=1)
    found = best(nodes(x1a=(5,), x2a=(1,)), run)
    assert found is not None
    assert found.cost == Cost(elsewhere=1, domains=1, free=5, blocks=1)
    assert not fits(nodes(x1a=(5,)), run), "a spare needs a slot somewhere"
    assert not fits(nodes(x1a=(5,), x2a=(1,)), replace(run, may_spread=False))


def test_spares_stay_before_domains_are_few() -> None:
    found = best(nodes(x1a=(5,), x2a=(3,)), Request(gpus=4, pod_gpus=1, group_gpus=2, spares=1))
    assert found is not None
    assert found.cost == Cost(elsewhere=0, domains=2, free=8, blocks=2)


def scoped(node: Node, *scopes: str) -> Node:
    return replace(node, scopes=frozenset(scopes))


def test_a_ceiling_binds_spares_included() -> None:
    tree = [scoped(node, "gold") for node in nodes(x1a=(9,))]
    run = Request(gpus=6, pod_gpus=1, group_gpus=2, spares=1, ceilings=(Ceiling("gold", 9),))
    assert fits(tree, run)
    assert not fits(tree, replace(run, ceilings=(Ceiling("gold", 8),)))
    assert largest_groups(tree, replace(run, ceilings=(Ceiling("gold", 8),))) == 2


def test_a_group_lies_within_one_scope_even_where_scopes_share_a_domain() -> None:
    one, two = nodes(x1a=(1, 1))
    run = Request(gpus=2, pod_gpus=1, group_gpus=2, ceilings=(Ceiling("gold", 9), Ceiling("tin", 9)))
    assert not fits([scoped(one, "gold"), scoped(two, "tin")], run)
    assert fits([scoped(one, "gold", "tin"), scoped(two, "tin")], run)


def test_overlapping_scopes_are_not_counted_twice() -> None:
    one, two = nodes(x1a=(2, 2))
    run = Request(gpus=6, pod_gpus=1, group_gpus=2, ceilings=(Ceiling("gold", 4), Ceiling("tin", 4)))
    both = [scoped(one, "gold", "tin"), scoped(two, "gold", "tin")]
    assert largest_groups(both, run) == 2
    assert best(both, replace(run, gpus=4)) is not None


def test_a_node_in_no_scope_is_no_part_of_the_run() -> None:
    one, two = nodes(x1a=(4, 7))
    found = best([scoped(one, "gold"), two], Request(4, 1, 4, ceilings=(Ceiling("gold", 9),)))
    assert found is not None
    assert found.cost.free == 4


def test_a_malleable_run_has_the_largest_legal_size_that_fits() -> None:
    run = Request(gpus=12, pod_gpus=2, group_gpus=4, malleability=Malleability(step_gpus=3, min_gpus=2))
    assert list(legal_sizes(run)) == [12, 6]
    found = best(nodes(x1a=(10,)), run)
    assert found is not None
    assert found.gpus == 6


@pytest.mark.parametrize("run", [THREE, replace(THREE, may_spread=False)])
def test_nothing_fits_where_nothing_is(run: Request) -> None:
    assert best((), run) is None
    assert largest_groups((), run) == 0
