"""Every fix is true and the smallest of its kind, and none is missing: what trying everything finds.

`GKM_PACKING_EXAMPLES` is how many examples there are of each kind of run, as in test_brute_force.py.
"""

import os
from dataclasses import replace

import pytest
from gkm.packing.fixes import changes
from gkm.packing.inventory import Inventory
from gkm.packing.values import Ceiling, Node, Request, Within
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.packing.cases import Case, inventories, requests
from support.packing.fixes import fits, wrong

EXAMPLES = int(os.environ.get("GKM_PACKING_EXAMPLES", "400"))
many = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
pytestmark = [pytest.mark.heavy, pytest.mark.timeout(0 if EXAMPLES > 400 else 300)]


def smaller(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return nodes of at most four GPUs, so that every change can be tried."""
    return tuple(Node(n.name, n.place, min(n.total, 4), min(n.free, n.total, 4) // 2, n.scopes) for n in nodes)


@st.composite
def refused(draw: st.DrawFn) -> Case:
    """Return a case without scopes that does not fit."""
    nodes = smaller(draw(inventories(domains=4)))
    request = draw(requests(nodes, groups=4))
    assume(not fits(nodes, request))
    return nodes, request


@st.composite
def refused_with_scopes(draw: st.DrawFn) -> Case:
    """Return a case with one or two scopes, which may overlap, that does not fit."""
    names = draw(st.sampled_from([("s1",), ("s1", "s2"), ("s2", "s3")]))
    nodes = smaller(draw(inventories(domains=3, scopes=names)))
    total = sum(node.total for node in nodes)
    ceilings = tuple(Ceiling(name, draw(st.integers(0, total + 1))) for name in names)
    request = draw(requests(nodes, groups=3, ceilings=ceilings))
    assume(not fits(nodes, request))
    return nodes, request


@st.composite
def refused_within(draw: st.DrawFn) -> Case:
    """Return a case that does not fit, of a run that stays within one area."""
    nodes = smaller(draw(inventories(domains=4)))
    request = replace(draw(requests(nodes, groups=4)), within=draw(st.sampled_from(Within)))
    assume(not fits(nodes, request))
    return nodes, request


def agree(nodes: tuple[Node, ...], request: Request) -> None:
    told = changes(Inventory.from_nodes(nodes), request).fixes
    assert len(told) <= 8
    assert wrong(nodes, request, told) == []


@many
@given(refused())
def test_a_fix_is_true_and_the_smallest_of_its_kind(case: Case) -> None:
    agree(*case)


@many
@given(refused_with_scopes())
def test_with_scopes_it_is_too(case: Case) -> None:
    agree(*case)


@many
@given(refused_within())
def test_within_an_area_it_is_too(case: Case) -> None:
    agree(*case)
