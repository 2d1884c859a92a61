"""Which nodes of a domain pods and spares take."""

from itertools import combinations

from gkm.packing.nodes.inside import Layout, Seat, Wanted, lay_out
from hypothesis import given
from hypothesis import strategies as st


def seats(*slots: int) -> list[Seat]:
    return [Seat(f"n{number}", count, 0) for number, count in enumerate(slots, 1)]


def test_a_group_fills_whole_nodes_first_and_the_rest_goes_where_least_is_left_over() -> None:
    layout = lay_out(seats(8, 3, 5, 8), [Wanted(10, 0)])
    assert dict(layout.groups[0].pods) == {"n1": 8, "n2": 2}


def test_names_decide_between_equals() -> None:
    assert lay_out(list(reversed(seats(4, 4))), [Wanted(4, 0)]).groups[0].pods == (("n1", 4),)


def test_a_node_that_wastes_fewer_gpus_is_the_tighter_of_two() -> None:
    assert lay_out([Seat("a", 4, 3), Seat("b", 4, 1)], [Wanted(2, 0)]).groups[0].pods == (("b", 2),)


def test_a_spare_is_beside_its_group_only_where_there_is_no_other_node() -> None:
    assert lay_out(seats(4, 1), [Wanted(3, 1)]).groups[0].spares == ("n2",)
    assert lay_out(seats(4), [Wanted(3, 1)]).shared == 1


def test_groups_and_spares_are_laid_out_together() -> None:
    # Filled up node by node the second group is on both nodes, and its spare would be beside it.
    layout = lay_out(seats(4, 4), [Wanted(3, 1), Wanted(3, 1)])
    assert layout.shared == 0
    assert [group.spares for group in layout.groups] == [("n2",), ("n1",)]


def test_a_group_leaves_the_nodes_whose_slots_its_spares_need() -> None:
    # 4 + 3 would leave one node of 3 to four spares; 3 + 3 leaves that of 4.
    assert lay_out(seats(4, 3, 3), [Wanted(6, 4)]).shared == 0


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.lists(st.integers(1, 4), max_size=4), st.integers(0, 3))
def test_every_pod_has_a_slot_and_no_slot_has_two(slots: list[int], groups: list[int], spares: int) -> None:
    wanted = [Wanted(pods, spares) for pods in groups]
    if sum(pods + spares for pods in groups) > sum(slots):
        return
    layout = lay_out(seats(*slots), wanted)
    used = {f"n{number}": 0 for number in range(1, len(slots) + 1)}
    for group, seated in zip(wanted, layout.groups, strict=True):
        assert sum(pods for _, pods in seated.pods) == group.pods
        assert len(seated.spares) == spares
        for name, pods in [*seated.pods, *((name, 1) for name in seated.spares)]:
            used[name] += pods
    assert all(used[f"n{number}"] <= count for number, count in enumerate(slots, 1))
    assert sum(layout.left.values()) == sum(slots) - sum(used.values())


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 12), st.integers(1, 6))
def test_the_spares_of_a_lone_group_are_apart_wherever_any_choice_of_nodes_allows_it(
    slots: list[int], pods: int, spares: int
) -> None:
    if pods + spares > sum(slots):
        return
    apart = any(
        pods <= sum(chosen) <= sum(slots) - spares
        for count in range(1, len(slots) + 1)
        for chosen in combinations(slots, count)
    )
    layout: Layout = lay_out(seats(*slots), [Wanted(pods, spares)])
    assert (layout.shared == 0) == apart
