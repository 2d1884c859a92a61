"""The tables hold the least cost of every number of groups, and are read back to the plan of the smallest keys."""

from itertools import product
from typing import NamedTuple

import pytest
from gkm.packing.domains import cover as module
from gkm.packing.domains.costs import Limits, costs
from gkm.packing.domains.cover import TooLargeError, cover
from gkm.packing.domains.options import WHOLE, Option, Shape, options, steps
from gkm.packing.domains.reading import read
from gkm.packing.values import Policy
from hypothesis import given, settings
from hypothesis import strategies as st


class Tree(NamedTuple):
    """Domains as (slots, free GPUs), in blocks."""

    blocks: list[list[tuple[int, int]]]
    shape: Shape
    groups: int
    policy: Policy
    wide: bool

    @property
    def domains(self) -> list[tuple[int, int]]:
        return [domain for block in self.blocks for domain in block]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    pods, spares = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    domain = st.integers(0, 9).flatmap(lambda slots: st.tuples(st.just(slots), st.integers(slots, slots + 2)))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    blocks = [draw(st.lists(domain, min_size=size, max_size=size)) for size in sizes]
    shape = Shape(pods, spares, draw(st.integers(0, pods - 1)))
    return Tree(blocks[:2], shape, draw(st.integers(1, 4)), draw(st.sampled_from(Policy)), draw(st.booleans()))


def fewest_leaving(slots: int, groups: int, shape: Shape, *, short: bool) -> int | None:
    """Return how few groups lose their spares, by trying all numbers; None if the groups do not fit."""
    pods = groups * shape.pods - (shape.missing if short else 0)
    fitting = [away for away in range(groups + 1) if pods + (groups - away) * shape.spares <= slots]
    return fitting[0] if fitting else None


def tried(tree: Tree) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (cost, -use of each domain, -groups of each) of the best plan, by trying all."""
    found = []
    domains, shape = tree.domains, tree.shape
    block_of = [number for number, block in enumerate(tree.blocks) for _ in block]
    for taken in product(range(tree.groups + 1), repeat=len(domains)):
        if sum(taken) != tree.groups:
            continue
        used = [number for number, groups in enumerate(taken) if groups]
        for short in used if shape.missing else [None]:
            leaving = [fewest_leaving(domains[d][0], taken[d], shape, short=d == short) for d in used]
            if None not in leaving:
                spares = sum(away for away in leaving if away is not None)
                free, blocks = sum(domains[d][1] for d in used), len({block_of[d] for d in used})
                cost = {
                    Policy.FEWEST_DOMAINS: (spares, len(used), free, blocks),
                    Policy.FEWEST_BLOCKS: (spares, blocks, len(used), free),
                    Policy.LEAST_WASTE: (spares, free, len(used), blocks),
                }[tree.policy]
                keys = *(0 if d in used else 1 for d in range(len(domains))), *(-groups for groups in taken)
                found.append((cost, keys))
    return min(found) if found else None


@settings(max_examples=300, deadline=None)
@given(trees())
def test_what_is_read_back_is_what_trying_everything_finds(tree: Tree) -> None:
    most = 1 << 40 if tree.wide else 1  # as wide as only Python's integers are, or as narrow as it may be
    free = sum(gpus for _, gpus in tree.domains)
    weights = costs(tree.policy, Limits(tree.groups * most, len(tree.domains) * most, free + 1, len(tree.blocks)))
    assert weights.fits_int64 is not tree.wide
    offered = [options(slots, gpus, tree.shape, weights, leave=True) for slots, gpus in tree.domains]
    starts = [sum(len(block) for block in tree.blocks[:number]) for number in range(len(tree.blocks))]
    blocks = [range(start, start + len(block)) for start, block in zip(starts, tree.blocks, strict=True)]
    short = tree.shape.missing > 0
    tables = cover(offered, blocks, weights, (tree.groups,), short=short)
    start = (1 if short else 0, tree.groups)
    best = tried(tree)
    assert (tables.least(start) < weights.impossible) == (best is not None)
    if best is not None:
        taken = {domain: groups[0] for domain, groups, *_ in read(tables, [start])}
        uses = (*(0 if d in taken else 1 for d in range(len(tree.domains))),)
        assert (*uses, *(-taken.get(d, 0) for d in range(len(tree.domains)))) == best[1]


def test_rows_that_are_not_kept_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 0)
    weights = costs(Policy.FEWEST_DOMAINS, Limits(0, 3, 30, 2))
    # (groups, free GPUs): the second and third together are cheaper than the first and third, in as many blocks.
    offered = [
        [Option((groups,), WHOLE, weights.domain + free * weights.gpu)] for groups, free in ((2, 9), (2, 5), (1, 3))
    ]
    tables = cover(offered, [range(2), range(2, 3)], weights, (3,), short=False)
    assert not tables.kept
    assert [(taken.domain, taken.groups) for taken in read(tables, [(0, 3)])] == [(1, (2,)), (2, (1,))]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 5), st.integers(0, 4), st.booleans())
def test_steps_say_the_most_groups_for_every_number_whose_spares_leave(
    slots: int,
    pods: int,
    spares: int,
    missing: int,
    short: bool,  # noqa: FBT001
) -> None:
    shape = Shape(pods, spares, min(missing, pods - 1))
    found = steps(slots, shape, short=short, leave=True)
    for groups in range(1, 45):
        served = next((leaving for most, leaving in found if most >= groups), None)
        assert served == fewest_leaving(slots, groups, shape, short=short)


def test_two_scopes_are_two_axes() -> None:
    weights = costs(Policy.FEWEST_DOMAINS, Limits(0, 2, 10, 1))
    one, two = Option((2, 0), WHOLE, weights.domain), Option((1, 1), WHOLE, weights.domain + weights.gpu)
    tables = cover([[one], [two]], [range(2)], weights, (3, 1), short=False)
    assert tables.least((0, 2, 0)) == weights.block + weights.domain
    assert tables.least((0, 1, 1)) == weights.block + weights.domain + weights.gpu
    assert tables.least((0, 3, 1)) == weights.block + 2 * weights.domain + weights.gpu
    assert [groups for _, groups, *_ in read(tables, [(0, 3, 1)])] == [(2, 0), (1, 1)]


def test_a_problem_larger_than_memory_is_refused_before_any_is_taken() -> None:
    weights = costs(Policy.FEWEST_DOMAINS, Limits(0, 10**9, 10, 1))
    with pytest.raises(TooLargeError, match="1000000000 groups over 1 domains"):
        cover([[Option((1,), WHOLE, 1)]], [range(1)], weights, (10**9,), short=False)
