"""HiGHS finds no cheaper plan: brute force and the planner cost what the same objective costs as an integer program."""

from dataclasses import replace
from random import Random

import pytest
from gkm.packing.plan import plan
from gkm.packing.values import Node, Plan, Policy, Refusal, Request
from hypothesis import given, settings
from support.examples import examples
from support.packing.brute import best, priced
from support.packing.cases import Case, cases
from support.packing.checker import problems
from support.packing.inventories import Shape, generated
from support.packing.reference import least_cost

pytestmark = pytest.mark.heavy
H100 = generated(Shape(nodes=3_600, node_gpus=8), Random(8))
"""200 domains of 18 nodes."""
NVL72 = generated(Shape(nodes=5_400, node_gpus=4), Random(72))
"""300 domains of 18 nodes."""
UNEVEN = tuple(
    replace(node, total=16, free=node.free + Random(node.name).randint(0, 8))
    for node in generated(Shape(nodes=2_160, node_gpus=8), Random(5))
)
"""120 domains whose nodes have odd numbers of free GPUs, so that pods leave some of each."""


@settings(max_examples=examples(150))
@given(cases())
def test_trying_everything_finds_what_highs_finds(case: Case) -> None:
    nodes, run = case
    run = replace(run, malleability=None)
    found, expected = best(nodes, run), least_cost(nodes, run)
    assert (found and found.cost.by(run.policy)) == (expected and expected.by(run.policy))


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    ("nodes", "run"),
    [
        pytest.param(H100, Request(512, 8, 64), id="8 groups of 64"),
        pytest.param(H100, Request(512, 8, 64, spares=2), id="8 groups of 64 with spares"),
        pytest.param(H100, Request(8 * 128, 8, 128), id="8 groups of 128"),
        pytest.param(H100, Request(270 * 32, 8, 32, spares=1), id="270 groups of 32, some of whose spares must leave"),
        pytest.param(
            H100, Request(320 * 32 - 8, 8, 32, spares=1), id="320 groups of 32, many of whose spares must leave"
        ),
        pytest.param(NVL72, Request(64 * 32 - 20, 4, 32), id="64 groups of 32, the last one short"),
        pytest.param(
            NVL72, Request(40 * 32 - 8, 4, 32, spares=1), id="40 groups of 32, the last one short, with spares"
        ),
        pytest.param(UNEVEN, Request(30 * 12, 3, 12, spares=1), id="pods of 3 on uneven nodes"),
        pytest.param(UNEVEN, Request(12 * 55, 5, 55, spares=2), id="pods of 5 on uneven nodes"),
    ],
)
def test_no_cheaper_plan_exists_among_hundreds_of_domains(
    nodes: tuple[Node, ...], run: Request, policy: Policy
) -> None:
    run = replace(run, policy=policy)
    answer, expected = plan(nodes, run, "v1"), least_cost(nodes, run)
    assert isinstance(answer, Plan)
    assert expected is not None
    assert priced(nodes, answer).cost.by(policy) == expected.by(policy)
    assert problems(nodes, run, answer) == []


@pytest.mark.parametrize("spares", [0, 1])
def test_the_largest_run_that_fits_is_the_largest_for_highs(spares: int) -> None:
    refused = plan(NVL72, Request(4_000 * 32, 4, 32, spares=spares), "v1")
    assert isinstance(refused, Refusal)
    most = refused.largest_groups
    assert least_cost(NVL72, Request(most * 32, 4, 32, spares=spares)) is not None
    assert least_cost(NVL72, Request((most + 1) * 32, 4, 32, spares=spares)) is None
