"""The tables hold the least cost of every number of groups, and are read back to the plan of the smallest keys."""

from itertools import product
from typing import NamedTuple

import pytest
from gkm.packing.domains.capacity import Step, steps
from gkm.packing.domains.knapsack import (
    INT64_BITS,
    Area,
    AreaLevel,
    DomainOption,
    Problem,
    Symmetry,
    Tables,
    read,
    solve,
    tree,
)
from gkm.packing.domains.selection import Costs, Objective, objective
from gkm.packing.values import Policy, Request, TooLargeError
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples


def a_run(pods: int, spares: int, missing: int) -> Request:
    """Return a run of two groups, the last of which misses some pods."""
    return Request(2 * pods - missing, 1, pods, spares=spares)


class Case(NamedTuple):
    """Domains as (slots, free GPUs), with the number of the region, cluster and block of each."""

    domains: list[tuple[int, int]]
    areas: list[tuple[int, int, int]]
    run: Request
    groups: int
    policy: Policy
    wide: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pods, spares = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    domain = st.integers(0, 9).flatmap(lambda slots: st.tuples(st.just(slots), st.integers(slots, slots + 2)))
    domains = draw(st.lists(domain, min_size=1, max_size=5))
    areas, at = [], (0, 0, 0)
    for _ in domains:
        # The next domain begins a new region, cluster or block, or none.
        level = draw(st.integers(0, 3))
        at = at[0] + (level < 1), at[1] + (level < 2), at[2] + (level < 3)
        areas.append(at)
    run = a_run(pods, spares, draw(st.integers(0, pods - 1)))
    return Case(domains, areas, run, draw(st.integers(1, 4)), draw(st.sampled_from(Policy)), draw(st.booleans()))


def fewest_elsewhere(slots: int, groups: int, run: Request, *, short: bool) -> int | None:
    """Return how few groups have spares elsewhere, by trying all numbers; None if the groups do not fit."""
    pods = groups * run.group_pods - (run.missing_pods if short else 0)
    fitting = [away for away in range(groups + 1) if pods + (groups - away) * run.spares <= slots]
    return fitting[0] if fitting else None


def tried(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return (cost, -use of each domain, -groups of each) of the best plan, by trying all."""
    found = []
    domains, run = case.domains, case.run
    for taken in product(range(case.groups + 1), repeat=len(domains)):
        if sum(taken) != case.groups:
            continue
        used = [number for number, groups in enumerate(taken) if groups]
        for short in used if run.missing_pods else [None]:
            away = [fewest_elsewhere(domains[d][0], taken[d], run, short=d == short) for d in used]
            if None in away:
                continue
            spares, free = sum(count for count in away if count is not None), sum(domains[d][1] for d in used)
            regions, clusters, blocks = (len({case.areas[d][level] for d in used}) for level in range(3))
            cost = {
                Policy.FEWEST_DOMAINS: (spares, len(used), regions, clusters, free, blocks),
                Policy.FEWEST_BLOCKS: (spares, blocks, regions, clusters, len(used), free),
                Policy.LEAST_WASTE: (spares, free, regions, clusters, len(used), blocks),
            }[case.policy]
            keys = *(0 if d in used else 1 for d in range(len(domains))), *(-groups for groups in taken)
            found.append((cost, keys))
    return min(found) if found else None


def solved(case: Case, costs: Objective) -> Tables:
    weights = costs.weights
    options = [
        [
            DomainOption(
                step.groups, weights.domains + free * weights.gpus + step.overflow * weights.spares, 0, step.short
            )
            for step in steps(slots, case.run, case.groups, overflow=True)
        ]
        for slots, free in case.domains
    ]
    of_areas = weights.regions, weights.clusters, weights.blocks
    levels = [AreaLevel([areas[depth] for areas in case.areas], cost) for depth, cost in enumerate(of_areas)]
    domains = range(len(case.domains))
    parts = tree(domains, levels, Symmetry(domains, [1] * len(domains), len(domains))).parts
    short = case.run.missing_pods > 0
    return solve(Problem(options, parts, (case.groups - short,), costs.impossible, short))


@settings(max_examples=examples(300))
@given(cases())
def test_what_is_read_back_is_what_trying_everything_finds(case: Case) -> None:
    most = 1 << 40 if case.wide else 1  # as wide as only Python's integers are, or as narrow as it may be
    count, free = len(case.domains), sum(gpus for _, gpus in case.domains)
    costs = objective(case.policy, Costs(case.groups * most, count * most, free + 1, count, count, count))
    assert (costs.impossible > 1 << INT64_BITS) is case.wide
    tables, short = solved(case, costs), case.run.missing_pods > 0
    start = (int(short), case.groups - short)
    best = tried(case)
    assert (tables.least(start) < costs.impossible) == (best is not None)
    if best is not None:
        taken = {step.domain: step.groups + step.short for step in read(tables, [start])}
        uses = (*(0 if d in taken else 1 for d in range(count)),)
        assert (*uses, *(-taken.get(d, 0) for d in range(count))) == best[1]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(0, 5), st.integers(0, 4), st.booleans())
def test_steps_are_the_most_groups_for_every_number_whose_spares_are_elsewhere(
    slots: int,
    pods: int,
    spares: int,
    missing: int,
    short: bool,  # noqa: FBT001
) -> None:
    run = a_run(pods, spares, min(missing, pods - 1))
    short = short and run.missing_pods > 0
    found = [step for step in steps(slots, run, 50, overflow=True) if step.short == short]
    for groups in range(1, 45):
        served = next((away for most, away, _ in found if most + short >= groups), None)
        assert served == fewest_elsewhere(slots, groups, run, short=short)


def test_a_share_is_taken_whole_or_not_at_all() -> None:
    # Groups of 2 pods and a spare, the last one of 1 pod; two groups of 6 slots, or of 5 with the short one.
    size = a_run(2, 1, 1)
    assert steps(7, size, 9, overflow=False, share=2) == [Step(1, 0, short=False), Step(0, 0, short=True)]
    assert steps(5, size, 9, overflow=False, share=2) == [Step(0, 0, short=True)]
    assert steps(4, size, 9, overflow=True, share=2) == [Step(1, 2, short=False), Step(0, 1, short=True)]


def test_scopes_are_axes_and_a_forced_domain_takes_an_option() -> None:
    options = [[DomainOption(2, 10, 0)], [DomainOption(1, 11, 1)], [DomainOption(0, 3, 1)]]
    tables = solve(Problem(options, (Area(100, (0, 1)), 2), (3, 1), 1 << 20, forced=frozenset({2})))
    assert tables.least((0, 2, 0)) == 3 + 100 + 10
    assert tables.least((0, 2, 1)) == 3 + 100 + 10 + 11
    assert tables.least((0, 3, 1)) >= 1 << 20
    assert [tuple(step) for step in read(tables, [(0, 2, 1)])] == [(0, 2, 0, False), (1, 1, 1, False), (2, 0, 1, False)]


def test_whole_groups_do_not_take_the_place_of_the_short_one() -> None:
    # Only the second domain takes the short group, and no whole one beside it: three groups need the first and second.
    options = [[DomainOption(2, 10)], [DomainOption(0, 10, 0, short=True)], [DomainOption(3, 5)]]
    tables = solve(Problem(options, (0, 1), (2,), 1 << 20, short=True))
    assert [(step.domain, step.groups, step.short) for step in read(tables, [(1, 2)])] == [(0, 2, False), (1, 0, True)]


def test_a_problem_larger_than_memory_is_refused_before_any_is_taken() -> None:
    with pytest.raises(TooLargeError, match="1000000000 groups over 1 domains"):
        solve(Problem([[DomainOption(1, 1)]], (0,), (10**9,), 1 << 20))
