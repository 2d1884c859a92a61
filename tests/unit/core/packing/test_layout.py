"""Which nodes of a domain pods and spares take."""

from collections.abc import Sequence

import pytest
from gkm.packing.nodes.demands import GroupDemand, GroupNodes, NodeSlots
from gkm.packing.nodes.layout import Layouts
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.layouts import best_costs, costs_of, wrong


def nodes(*slots: int) -> list[NodeSlots]:
    return [NodeSlots(f"n{number:03}", count, 0) for number, count in enumerate(slots, 1)]


def test_a_group_fills_whole_nodes_first_and_the_rest_goes_where_least_is_left_over() -> None:
    layout = Layouts().lay_out(nodes(8, 3, 5, 8), [GroupDemand(10, 0)])
    assert dict(layout[0].pods) == {"n001": 8, "n002": 2}


def test_names_decide_between_equals() -> None:
    assert Layouts().lay_out(list(reversed(nodes(4, 4))), [GroupDemand(4, 0)])[0].pods == (("n001", 4),)


def test_a_node_that_wastes_fewer_gpus_is_the_tighter_of_two() -> None:
    layout = Layouts().lay_out([NodeSlots("a", 4, 3), NodeSlots("b", 4, 1)], [GroupDemand(2, 0)])
    assert layout[0].pods == (("b", 2),)


def test_where_every_node_has_one_slot_the_tightest_nodes_come_first() -> None:
    some = [NodeSlots("a", 1, 4), NodeSlots("b", 1, 0), NodeSlots("c", 1, 0), NodeSlots("d", 1, 2)]
    (one, two) = Layouts().lay_out(some, [GroupDemand(1, 1), GroupDemand(1, 0)])
    assert (one, two) == (GroupNodes((("b", 1),), ("d",)), GroupNodes((("c", 1),), ()))


def test_a_group_is_not_cut_where_one_node_has_slots_for_all_of_it() -> None:
    assert Layouts().lay_out(nodes(8, 1), [GroupDemand(2, 0)])[0].pods == (("n001", 2),)
    # The first group would take the node of 4 as the tightest, and the second both others.
    layout = Layouts().lay_out(nodes(5, 4, 1), [GroupDemand(4, 0), GroupDemand(5, 0)])
    assert costs_of(layout)[1] == 2


def test_a_spare_is_beside_its_group_only_where_there_is_no_other_node() -> None:
    assert Layouts().lay_out(nodes(4, 1), [GroupDemand(3, 1)])[0].spares == ("n002",)
    assert costs_of(Layouts().lay_out(nodes(4), [GroupDemand(3, 1)]))[0] == 1


def test_many_groups_that_are_alike_are_on_one_node_each() -> None:
    # A search that takes them for different groups tries their places in every order.
    assert costs_of(Layouts().lay_out(nodes(9, 8, 2, 2), [GroupDemand(1, 0), *[GroupDemand(2, 0)] * 10]))[1] == 11


def test_spares_are_apart_where_scopes_overlap_and_few_layouts_do_that() -> None:
    kinds = [(7, {2}), (6, {0}), (4, {0, 1}), (2, {0, 2}), (1, {0, 1, 2})]
    some = [NodeSlots(f"n{slots}", slots, 0, frozenset(scopes)) for slots, scopes in kinds]
    groups = [
        GroupDemand(2, 2, 0),
        GroupDemand(2, 2, 0),
        GroupDemand(1, 2, 0),
        GroupDemand(2, 2, 2),
        GroupDemand(2, 2, 2),
    ]
    layout = Layouts().lay_out(some, groups)
    assert costs_of(layout) == (2, 5)


def test_groups_and_spares_are_laid_out_together() -> None:
    # Filled up node by node the second group is on both nodes, and its spare would be beside it.
    layout = Layouts().lay_out(nodes(4, 4), [GroupDemand(3, 1), GroupDemand(3, 1)])
    assert costs_of(layout)[0] == 0
    assert [group.spares for group in layout] == [("n002",), ("n001",)]


def test_the_pods_of_groups_are_apart_where_their_spares_need_that() -> None:
    layout = Layouts().lay_out(nodes(4, 4), [GroupDemand(1, 3), GroupDemand(1, 3)])
    assert costs_of(layout)[0] == 0
    assert [dict(group.pods) for group in layout] == [{"n001": 1}, {"n002": 1}]


def test_a_group_leaves_the_nodes_whose_slots_its_spares_need() -> None:
    # 4 + 3 would leave one node of 3 to four spares; 3 + 3 leaves that of 4.
    assert costs_of(Layouts().lay_out(nodes(4, 3, 3), [GroupDemand(6, 4)]))[0] == 0


def test_a_scope_leaves_nodes_to_others_that_have_no_other() -> None:
    both, one = frozenset({0, 1}), frozenset({1})
    some = [NodeSlots("a", 2, 0, both), NodeSlots("b", 4, 0, one)]
    layout = Layouts().lay_out(some, [GroupDemand(2, 0, scope=1), GroupDemand(1, 1, scope=0)])
    assert layout == (GroupNodes((("b", 2),), ()), GroupNodes((("a", 1),), ("a",)))


def test_spares_of_other_domains_make_way_for_those_of_the_domain() -> None:
    layout = Layouts().lay_out(nodes(2, 1), [GroupDemand(1, 1), GroupDemand(0, 1)])
    assert costs_of(layout)[0] == 0


@st.composite
def domains(draw: st.DrawFn, *, most_nodes: int = 4, most_groups: int = 3) -> tuple[list[NodeSlots], list[GroupDemand]]:
    """Return a domain and groups that are alike in the manner of a run: a short one, and guests without pods."""
    scopes = draw(st.sampled_from([1, 1, 2]))
    kinds = st.sampled_from([frozenset({0})] if scopes == 1 else [frozenset({0}), frozenset({1}), frozenset({0, 1})])
    alike = draw(st.booleans())
    size = st.just(draw(st.integers(1, 4))) if alike else st.integers(1, 4)
    count = draw(st.integers(1, most_nodes))
    some = [NodeSlots(f"n{at}", draw(size), draw(st.integers(0, 1)), draw(kinds)) for at in range(count)]
    pods, spares = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    groups = [
        GroupDemand(pods, spares, draw(st.integers(0, scopes - 1))) for _ in range(draw(st.integers(1, most_groups)))
    ]
    if draw(st.booleans()):
        groups[-1] = groups[-1]._replace(pods=draw(st.integers(1, pods)), spares=draw(st.integers(0, spares)))
    if draw(st.integers(0, 3)) == 0:
        groups.append(GroupDemand(0, draw(st.integers(1, 3)), draw(st.integers(0, scopes - 1))))
    return some, sorted(groups, key=lambda group: (not group.pods, group.scope))


@settings(max_examples=examples(400))
@given(domains())
def test_a_small_domain_has_the_layout_that_trying_everything_finds(
    domain: tuple[list[NodeSlots], list[GroupDemand]],
) -> None:
    some, groups = domain
    expected = best_costs(some, groups)
    assume(expected is not None)
    layout = Layouts().lay_out(some, groups)
    assert list(wrong(some, groups, layout)) == []
    assert costs_of(layout) == expected


@given(st.lists(st.integers(1, 6), min_size=9, max_size=30), st.lists(st.integers(1, 9), max_size=6), st.integers(0, 3))
def test_a_large_domain_has_a_valid_layout(slots: list[int], groups: list[int], spares: int) -> None:
    wanted = [GroupDemand(pods, spares) for pods in groups]
    assume(sum(pods + spares for pods in groups) <= sum(slots))
    layout = Layouts().lay_out(nodes(*slots), wanted)
    assert list(wrong(nodes(*slots), wanted, layout)) == []


@pytest.mark.parametrize("slots", [(4, 4, 4, 3, 3, 3, 2, 2), (8,) * 8, (1, 2, 3, 4, 5, 6, 7, 8)])
def test_a_search_that_ends_early_gives_a_valid_layout_and_the_same_again(slots: Sequence[int]) -> None:
    wanted = [GroupDemand(1, 2)] * (sum(slots) // 3)
    found: list[tuple[GroupNodes, ...]] = [Layouts(steps=300).lay_out(nodes(*slots), wanted) for _ in range(2)]
    assert list(wrong(nodes(*slots), wanted, found[0])) == []
    assert found[0] == found[1]


def test_domains_that_are_alike_are_laid_out_once_with_names_of_their_own() -> None:
    layouts = Layouts()
    wanted = [GroupDemand(1, 3), GroupDemand(1, 3)]
    one = layouts.lay_out(nodes(4, 4), wanted)
    left = layouts.steps
    two = layouts.lay_out([node._replace(name=f"other-{node.name}") for node in nodes(4, 4)], wanted)
    assert layouts.steps == left
    assert [group.spares for group in two] == [tuple(f"other-{name}" for name in group.spares) for group in one]


def test_large_domains_that_are_alike_are_laid_out_once_with_names_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts = Layouts()
    one = layouts.lay_out(nodes(*[4] * 9), [GroupDemand(6, 1)] * 2)
    monkeypatch.delattr("gkm.packing.nodes.layout.lay_out_greedily")
    two = layouts.lay_out(
        [node._replace(name=f"other-{node.name}") for node in nodes(*[4] * 9)], [GroupDemand(6, 1)] * 2
    )
    assert [dict(group.pods) for group in two] == [
        {f"other-{name}": count for name, count in group.pods} for group in one
    ]
