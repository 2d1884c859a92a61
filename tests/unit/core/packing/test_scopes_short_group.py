"""A short last group beside scopes whose ceilings bind: no plan gives a scope more than it may."""

from gkm.packing.plan import plan
from gkm.packing.values import Ceiling, Location, Node, Refusal, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.checker import problems


def node(number: int, domain: int, gpus: int, *scopes: str) -> Node:
    return Node(f"n{domain}{number}", Location("r", "c", "b", f"d{domain}"), gpus, gpus, frozenset(scopes))


@st.composite
def short_runs(draw: st.DrawFn) -> tuple[list[Node], Request]:
    """Return domains that one or two scopes take, and a run with a short last group that needs what both give."""
    nodes = [
        node(number, domain, draw(st.integers(1, 6)), *draw(st.sampled_from([("s0",), ("s1",), ("s0", "s1")])))
        for domain in range(draw(st.integers(2, 3)))
        for number in range(draw(st.integers(1, 2)))
    ]
    group = draw(st.integers(2, 3))
    groups = draw(st.integers(1, 3))
    gpus = groups * group + draw(st.integers(1, group - 1))
    first = draw(st.integers(0, groups)) * group
    ceilings = (Ceiling("s0", first), Ceiling("s1", gpus - first + draw(st.integers(0, 1))))
    return nodes, Request(gpus, 1, group, spares=draw(st.sampled_from([0, 0, 0, 1])), ceilings=ceilings)


@settings(max_examples=examples(400))
@given(short_runs())
def test_no_ceiling_is_exceeded_and_every_index_is_there_once(case: tuple[list[Node], Request]) -> None:
    nodes, request = case
    answer = plan(nodes, request, "v")
    assert isinstance(answer, Refusal) or problems(nodes, request, answer) == []
