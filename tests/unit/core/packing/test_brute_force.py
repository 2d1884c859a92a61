"""The planner finds what trying everything finds, and says no more than is so.

`GKM_PACKING_EXAMPLES` is how many examples there are of each kind of run: 400 without it, 20,000 for a proof.
Orders of nodes are tried a third as often.
"""

import os
from dataclasses import replace
from random import Random

import pytest
from gkm.packing.plan import plan
from gkm.packing.values import Refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from support.packing.brute import best, largest_groups, priced
from support.packing.cases import Case, cases, scoped_cases
from support.packing.checker import problems
from support.packing.refusals import binding_level

EXAMPLES = int(os.environ.get("GKM_PACKING_EXAMPLES", "400"))
many = settings(max_examples=EXAMPLES)
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(0 if EXAMPLES > 400 else 300)]


def agree(case: Case) -> None:
    """The planner's answer is the best there is, or a refusal where there is none."""
    nodes, request = case
    expected = best(nodes, request)
    answer = plan(nodes, request, "v1")
    if isinstance(answer, Refusal):
        assert expected is None, f"refused ({answer.message}), and this fits: {expected}"
        assert answer.largest_groups == largest_groups(nodes, request)
        return
    assert expected is not None, "planned what does not fit"
    assert problems(nodes, request, answer) == []
    found = priced(nodes, answer)
    assert found.gpus == expected.gpus
    assert found.cost.by(request.policy) == expected.cost.by(request.policy)
    assert found.domains == expected.domains


@many
@given(cases())
def test_a_run_gets_the_plan_of_least_cost_and_smallest_keys_or_a_true_refusal(case: Case) -> None:
    agree(case)


@many
@given(scoped_cases())
def test_a_run_with_scopes_does_too(case: Case) -> None:
    agree(case)


@many
@given(st.one_of(cases(), scoped_cases()))
def test_a_refusal_names_the_first_level_that_keeps_the_run_from_fitting(case: Case) -> None:
    nodes, request = case[0], replace(case[1], malleability=None)
    answer = plan(nodes, request, "v1")
    if isinstance(answer, Refusal):
        assert answer.level is binding_level(nodes, request), answer.message


@settings(many, max_examples=EXAMPLES // 3)
@given(st.one_of(cases(), scoped_cases()), st.randoms(use_true_random=False))
def test_the_order_of_nodes_changes_nothing(case: Case, chance: Random) -> None:
    nodes, request = case
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    assert repr(plan(shuffled, request, "v1")) == repr(plan(nodes, request, "v1"))
