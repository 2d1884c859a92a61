"""What no group of a mix can use is counted as trying everything counts it, and a forecast is what comes true."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from random import Random

import pytest
from gkm.api.topology_settings import MixGroup
from gkm.packing.fragmentation import DECIMALS, Fragmentation, Row, fragmentation
from gkm.packing.inventory import InvalidInventoryError, Inventory
from gkm.packing.plan import plan
from gkm.packing.values import Location, Node, Plan, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.cases import Case, cases, inventories

A, B, C = Location("r1", "c1", "b1", "a"), Location("r1", "c1", "b1", "b"), Location("r1", "c1", "b2", "c")
D = Location("r1", "c2", "b1", "d")


def measured(nodes: Sequence[Node], *mix: MixGroup, after: Plan | None = None) -> Fragmentation:
    return fragmentation(Inventory.from_nodes(nodes), mix, after)


def nodes(*free: tuple[Location, int]) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", place, 8, gpus) for number, (place, gpus) in enumerate(free))


@cache
def most_pods(free: tuple[int, ...], pod_gpus: int) -> int:
    """Return how many pods fit on nodes, by trying each node for the next one."""
    tried = [
        1 + most_pods(tuple(sorted((*free[:at], gpus - pod_gpus, *free[at + 1 :]))), pod_gpus)
        for at, gpus in enumerate(free)
        if gpus >= pod_gpus
    ]
    return max(tried, default=0)


def unusable(free: Sequence[int], kind: MixGroup) -> int:
    """Return what stays free of a domain when groups of a kind come until none fits any more."""
    groups = 0
    while most_pods(tuple(sorted(free)), kind.gpus_per_pod) * kind.gpus_per_pod >= (groups + 1) * kind.gpus:
        groups += 1
    return sum(free) - groups * kind.gpus


@st.composite
def kinds(draw: st.DrawFn) -> MixGroup:
    pod = draw(st.integers(1, 4))
    return MixGroup(pod * draw(st.integers(1, 5)), pod, draw(st.sampled_from([1, 1, 2, 7, 10**6])))


MIXES = st.lists(kinds(), min_size=1, max_size=4)


def expected(tree: Sequence[Node], mix: Sequence[MixGroup]) -> tuple[Fraction, int, int]:
    """Return expected unusable and free GPUs and the largest group, by trying everything."""
    by_place: dict[Location, list[int]] = {}
    for node in tree:
        by_place.setdefault(node.place, []).append(node.free)
    weighted = sum(kind.weight * unusable(free, kind) for kind in mix for free in by_place.values())
    pods = {kind.gpus_per_pod for kind in mix}
    largest = [pod * most_pods(tuple(sorted(free)), pod) for pod in pods for free in by_place.values()]
    return (
        Fraction(weighted, sum(kind.weight for kind in mix)),
        sum(node.free for node in tree),
        max(largest, default=0),
    )


def near(shown: float, exact: Fraction) -> bool:
    """Return whether a figure is the exact one, rounded."""
    return abs(Fraction(shown) - exact) <= Fraction(1, 2 * 10**DECIMALS) + Fraction(1, 10**9)


@settings(max_examples=examples(200))
@given(inventories(domains=6), MIXES)
def test_at_every_level_it_is_what_trying_everything_finds(tree: tuple[Node, ...], mix: list[MixGroup]) -> None:
    found = measured(tree, *mix)
    for names, rows in enumerate((found.regions, found.clusters, found.blocks, found.domains), 1):
        places = sorted({node.place[:names] for node in tree})
        assert [tuple(row.place) for row in rows] == places
        for row in rows:
            here = [node for node in tree if node.place[:names] == tuple(row.place)]
            exact, free, largest = expected(here, mix)
            assert (row.free_gpus, row.largest_group) == (free, largest)
            assert near(row.expected_unusable_gpus, exact)
    exact, free, largest = expected(tree, mix)
    assert (found.free_gpus, found.largest_group) == (free, largest)
    assert near(found.expected_unusable_gpus, exact)


@settings(max_examples=examples(150))
@given(cases(), MIXES)
def test_the_forecast_is_what_is_measured_once_the_plan_runs(case: Case, mix: list[MixGroup]) -> None:
    tree, request = case
    answer = plan(tree, request, "v1")
    if not isinstance(answer, Plan):
        return
    taken = {node.name: 0 for node in tree}
    for group in answer.groups:
        for node, gpus in (*group.nodes, *((spare.node, spare.gpus) for spare in group.spares)):
            taken[node] += gpus
    later = [Node(node.name, node.place, node.total, node.free - taken[node.name], node.scopes) for node in tree]
    assert measured(tree, *mix, after=answer) == measured(later, *mix)


@settings(max_examples=examples(60))
@given(inventories(domains=5), MIXES, st.randoms(use_true_random=False))
def test_no_order_changes_anything(tree: tuple[Node, ...], mix: list[MixGroup], chance: Random) -> None:
    usual = measured(tree, *mix)
    shuffled = list(tree)
    chance.shuffle(shuffled)
    chance.shuffle(mix)
    assert measured(shuffled, *mix) == usual


def test_a_group_does_not_add_up_over_domains() -> None:
    tree = nodes((A, 8), (B, 8))
    assert measured(tree, MixGroup(16, 8)).expected_unusable_gpus == 16
    assert measured(nodes((A, 8), (A, 8)), MixGroup(16, 8)).expected_unusable_gpus == 0


def test_pods_are_whole() -> None:
    found = measured(nodes((A, 3), (A, 3)), MixGroup(4, 4))
    assert (found.free_gpus, found.expected_unusable_gpus, found.largest_group) == (6, 6, 0)


def test_kinds_count_by_their_share_of_demand() -> None:
    # Groups of 8 leave 4 of 12 GPUs, groups of 12 none: three quarters of the demand leave 4.
    assert measured(nodes((A, 8), (A, 4)), MixGroup(8, 4, 3), MixGroup(12, 4, 1)).expected_unusable_gpus == 3


def test_figures_are_rounded_halves_up() -> None:
    tree = nodes((A, 1))
    assert measured(tree, MixGroup(2, 2, 1), MixGroup(1, 1, 2)).expected_unusable_gpus == 0.333
    assert measured(tree, MixGroup(2, 2, 2), MixGroup(1, 1, 1)).expected_unusable_gpus == 0.667
    assert measured(tree, MixGroup(2, 2, 1), MixGroup(1, 1, 1999)).expected_unusable_gpus == 0.001


def test_places_of_one_name_in_two_others_are_two() -> None:
    found = measured(nodes((A, 8), (C, 4), (D, 2)), MixGroup(4, 4))
    assert found.blocks == (
        Row(("r1", "c1", "b1"), 8, 0.0, 8),
        Row(("r1", "c1", "b2"), 4, 0.0, 4),
        Row(("r1", "c2", "b1"), 2, 2.0, 0),
    )
    assert found.clusters == (Row(("r1", "c1"), 12, 0.0, 8), Row(("r1", "c2"), 2, 2.0, 0))
    assert found.regions == (Row(("r1",), 14, 2.0, 8),)


def test_the_largest_group_is_in_the_pods_that_have_most_room() -> None:
    assert measured(nodes((A, 7), (A, 7)), MixGroup(4, 4), MixGroup(3, 3)).largest_group == 12


def test_without_nodes_nothing_is_free_and_nothing_unusable() -> None:
    assert measured((), MixGroup(8, 8)) == Fragmentation(0.0, 0, 0, (), (), (), ())


def test_sums_do_not_overflow() -> None:
    # 2^16 GPUs a node is the most there can be, and so are the weights and the kinds.
    count = 2_000
    tree = [Node(f"n{number:04}", A, 1 << 16, 1 << 16) for number in range(count)]
    mix = [MixGroup(10**9, 10**9, 10**6)] * 32
    assert measured(tree, *mix).expected_unusable_gpus == count << 16


def test_a_plan_for_other_nodes_is_refused() -> None:
    answer = plan(nodes((A, 8)), Request(8, 8, 8), "v1")
    assert isinstance(answer, Plan)
    with pytest.raises(InvalidInventoryError, match="n0"):
        measured(nodes((A, 4)), MixGroup(4, 4), after=answer)
