"""Random runs with scopes, spares and short groups together: plans and re-plans against an independent programme.

GKM_PACKING_DRAWS says how many seeds are drawn: 20000 for all that is promised, without it those that support.examples
runs of 300. A failure names the seed: `drawn(seed)` and `loss_drawn(seed)` make its case, and
`support.packing.draws_shrinking` a smaller one.
"""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Group, Location, Node, Plan, Policy, Request, Share
from support.examples import examples
from support.packing.checker import false_groups
from support.packing.draws import drawn
from support.packing.draws_faults import Fault, faults, loss_faults
from support.packing.draws_losses import Loss, loss_drawn
from support.packing.reference import least_cost
from support.packing.reference_layout import best_layout
from support.packing.reference_moves import fewest_moves

SEEDS = int(os.environ.get("GKM_PACKING_DRAWS") or examples(300))


def found(judge: Callable[[int], list[Fault]]) -> list[str]:
    return [f"seed {seed}: {fault.letter}: {fault.sentence}" for seed in range(SEEDS) for fault in judge(seed)]


@pytest.mark.timeout(36_000)
def test_plans_are_valid_and_cost_what_the_reference_does() -> None:
    assert found(lambda seed: faults(drawn(seed))) == []


@pytest.mark.timeout(36_000)
def test_replans_are_valid_and_move_the_fewest_groups() -> None:
    assert found(lambda seed: loss_faults(loss_drawn(seed))) == []


@pytest.mark.parametrize("seed", [3234, 9861, 13572])
def test_layouts_are_the_best_where_a_search_of_limited_steps_misses_them(seed: int) -> None:
    assert faults(drawn(seed)) == []


def test_the_reference_finds_a_plan_that_presolve_drops() -> None:
    best = least_cost(drawn(18701).nodes, drawn(18701).request)
    assert best is not None
    assert best.by(Policy.FEWEST_DOMAINS) == (0, 1, 1, 1, 24, 1)


def node(name: str, domain: str, free: int, *scopes: str, region: str = "r") -> Node:
    return Node(name, Location(region, "c", "b", domain), free, free, frozenset(scopes))


def test_the_same_seed_is_the_same_case() -> None:
    assert drawn(7) == drawn(7)
    assert loss_drawn(7) == loss_drawn(7)


def test_the_reference_counts_regions_before_stranded_gpus() -> None:
    nodes = [node("n1", "d1", 8, region="eu"), node("n2", "d2", 9, region="eu"), node("n3", "d3", 8, region="us")]
    best = least_cost(nodes, Request(16, 8, 8))
    assert best is not None
    assert (best.domains, best.regions, best.free) == (2, 1, 17)


def test_the_reference_holds_every_ceiling() -> None:
    nodes = [node("n00", "d0", 4, "s1"), node("n10", "d1", 3, "s0", "s1")]
    fits = Request(5, 1, 2, ceilings=(Ceiling("s0", 2), Ceiling("s1", 3)))
    assert least_cost(nodes, fits) is not None
    assert least_cost(nodes, replace(fits, ceilings=(Ceiling("s0", 2), Ceiling("s1", 2)))) is None


def test_the_reference_moves_two_groups_where_the_short_one_makes_way() -> None:
    domains = [f"d{number}" for number in range(9)]
    nodes = [*(node(name, name, 2) for name in [*domains, "z"]), node("y", "y", 1)]
    former = [Group(n, 2, Location("r", "c", "b", name), "", (Share(name, 2),)) for n, name in enumerate(domains)]
    former.append(Group(9, 1, Location("r", "c", "b", "z"), "", (Share("z", 1),)))
    left = tuple(item for item in nodes if item.name != "d0")
    fewest = fewest_moves(Loss(left, tuple(former), Request(19, 1, 2)))
    assert (fewest.beside, fewest.most) == (False, 2)


def test_the_best_layout_sets_spares_apart_from_their_groups() -> None:
    nodes = [node("n1", "d", 4), node("n2", "d", 4)]
    answer = plan(nodes, Request(2, 1, 1, spares=3, policy=Policy.FEWEST_DOMAINS), "v")
    assert isinstance(answer, Plan)
    assert best_layout(nodes, answer.request, answer.groups) == (0, 2)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        pytest.param({"index": 1}, "groups are not numbered", id="index"),
        pytest.param({"nodes": (Share("n1", 5),)}, "node n1 gives 5 GPUs", id="free"),
        pytest.param({"nodes": (Share("n2", 4),)}, "lies in", id="domain"),
        pytest.param({"scope": "s1"}, "is not in its scope s1", id="scope"),
    ],
)
def test_an_invalid_plan_is_found(changed: dict[str, object], sentence: str) -> None:
    nodes = [node("n1", "d1", 4, "s0"), node("n2", "d2", 4, "s0")]
    request = Request(4, 1, 4, ceilings=(Ceiling("s0", 4), Ceiling("s1", 4)))
    group = Group(0, 4, nodes[0].place, "s0", (Share("n1", 4),))
    assert false_groups(nodes, request, [group]) == []
    wrong = false_groups(nodes, request, [replace(group, **changed)])  # type: ignore[arg-type]
    assert any(sentence in problem for problem in wrong)
