"""Groups of a plan where pods hold their GPUs."""

from dataclasses import replace

from gkm.packing.replanning.following import following
from gkm.packing.values import Group, Location, Node, Request, Share
from hypothesis import given
from hypothesis import strategies as st

REQUEST = Request(32, 8, 16)


def place(domain: str) -> Location:
    return Location("r", "c", "b", domain)


def group(index: int, domain: str, *nodes: str) -> Group:
    return Group(index, 8 * len(nodes), place(domain), "", tuple(Share(node, 8) for node in nodes))


def held(*names: str, moved: str = "") -> tuple[dict[str, int], list[Node]]:
    """Pods of 8 GPUs on nodes whose names begin with that of their domain, but for one that has `moved` to d9."""
    gpus = {name: 8 * names.count(name) for name in names}
    nodes = [Node(name, place("d9" if name == moved else name[:2]), 16, count) for name, count in gpus.items()]
    return gpus, nodes


PLAN = (group(0, "d1", "d1-a", "d1-b"), group(1, "d2", "d2-a", "d2-b"))


def test_groups_stay_while_pods_hold_them_or_have_not_come() -> None:
    assert following(REQUEST, [PLAN], *held("d1-a", "d1-b", "d2-a", "d2-b")) == PLAN
    assert following(REQUEST, [PLAN], *held("d1-a", "d2-b")) == PLAN
    assert following(REQUEST, [PLAN], *held()) == PLAN


def test_a_group_is_where_an_older_plan_had_it_if_pods_hold_all_of_it_there() -> None:
    older = (PLAN[0], group(1, "d3", "d3-a", "d3-b"))
    assert following(REQUEST, [PLAN, older], *held("d1-a", "d1-b", "d3-a", "d3-b")) == older
    assert following(REQUEST, [PLAN, older], *held("d1-a", "d1-b", "d3-a")) == PLAN


def test_a_group_returns_to_no_place_that_is_another_now() -> None:
    older = (PLAN[0], group(1, "d3", "d3-a", "d3-b"))
    assert following(REQUEST, [PLAN, older], *held("d3-a", "d3-b", moved="d3-b")) == PLAN


def test_one_pod_counts_for_one_group() -> None:
    older = (group(0, "d3", "d3-a", "d3-b"), group(1, "d3", "d3-a", "d3-b"))
    assert following(REQUEST, [PLAN, older], *held("d3-a", "d3-b")) == (older[0], PLAN[1])


def test_pods_elsewhere_form_groups_of_one_domain() -> None:
    assert following(REQUEST, [PLAN], *held("d5-x", "d5-y", "d6-z")) == (group(0, "d5", "d5-x", "d5-y"), PLAN[1])
    assert following(REQUEST, [PLAN], *held("d5-x", "d6-z")) == PLAN


def test_the_group_without_pods_goes_to_the_pods_elsewhere() -> None:
    found = following(REQUEST, [PLAN], *held("d1-a", "d5-x", "d5-y"))
    assert found == (PLAN[0], group(1, "d5", "d5-x", "d5-y"))


def test_a_group_takes_over_the_node_that_it_shares() -> None:
    assert following(REQUEST, [PLAN], *held("d2-b", "d2-c")) == (PLAN[0], group(1, "d2", "d2-b", "d2-c"))


def test_two_pods_of_one_node_are_a_group() -> None:
    found = following(REQUEST, [PLAN], *held("d1-a", "d1-a"))
    assert found == (replace(PLAN[0], nodes=(Share("d1-a", 16),)), PLAN[1])


def test_a_short_group_has_the_pods_that_are_left() -> None:
    short = (PLAN[0], group(1, "d2", "d2-a"))
    found = following(Request(24, 8, 16), [short], *held("d5-x", "d5-y", "d6-z"))
    assert found == (group(0, "d5", "d5-x", "d5-y"), group(1, "d6", "d6-z"))


@given(st.lists(st.sampled_from([f"d{domain}-{node}" for domain in range(1, 5) for node in "abc"]), max_size=10))
def test_no_gpu_of_a_pod_is_in_two_groups_and_no_group_changes_its_size(names: list[str]) -> None:
    gpus_held, nodes = held(*names)
    found = following(REQUEST, [PLAN], gpus_held, nodes)
    assert [(one.index, one.gpus) for one in found] == [(0, 16), (1, 16)]
    for one in found:
        assert {name[:2] for name, _ in one.nodes} == {one.place.domain}
        assert sum(gpus for _, gpus in one.nodes) == one.gpus
    changed = [one for one in found if one not in PLAN]
    for node in {name for one in changed for name, _ in one.nodes}:
        assert sum(dict(one.nodes).get(node, 0) for one in changed) <= gpus_held[node]
