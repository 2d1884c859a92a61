"""The guard: which changes must be confirmed, and when they are."""

from collections.abc import Mapping

import pytest
from gkm.api.topology_settings import LEVEL_LABELS, TopologyGuard
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees.guard import (
    WINDOW_SECONDS,
    GuardState,
    Places,
    judge,
    places_of_hypernodes,
    places_of_labels,
    places_of_tree,
)
from gkm.topology.trees.names import own_label_value
from gkm.topology.trees.tree import Domain, Tree
from hypothesis import given
from hypothesis import strategies as st

GUARD = TopologyGuard(percent=20, minimum=8, rounds=3, interval_seconds=60.0)
ANY = TopologyGuard(percent=0, minimum=1, rounds=3, interval_seconds=60.0)
NAMES = [f"n{number:03}" for number in range(100)]


def racks(size: int = 10, names: list[str] = NAMES) -> dict[str, str]:
    """Nodes in racks of a size."""
    return {name: f"r{position // size}" for position, name in enumerate(names)}


def without(count: int, places: Mapping[str, str] | None = None) -> Places:
    """A level where the first nodes have lost their place."""
    return {"rack": {name: rack for name, rack in (places or racks()).items() if name not in NAMES[:count]}}


def after_start(places: Mapping[str, str] | None = None) -> GuardState:
    return GuardState().seeing({"rack": places or racks()})


def lost(before: Places, after: Places, nodes: set[str] | None = None) -> list[str]:
    everything = {node for domains in (*before.values(), *after.values()) for node in domains}
    state = judge(GuardState().seeing(before), after, everything if nodes is None else nodes, ANY, 0.0)
    return sorted(state.losses.nodes)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"rack": {"a": "r", "b": "r"}}, {"rack": {"a": "r", "b": "r"}}, ""),
        ({"rack": {"a": "r", "b": "r"}}, {"rack": {"a": "other", "b": "other"}}, ""),
        ({"rack": {"a": "r", "b": "s"}}, {"rack": {"a": "s", "b": "r"}}, ""),
        ({"rack": {"a": "r", "b": "r"}}, {"rack": {"a": "r"}}, "b"),
        ({"rack": {"a": "r"}, "block": {"a": "b"}}, {"rack": {"a": "r"}}, "a"),
        ({"rack": {"a": "r"}}, {"shelf": {"a": "r"}}, "a"),
        ({"rack": {"a": "r"}}, {"rack": {"a": "r", "b": "r"}, "block": {"a": "b"}}, ""),
        ({"rack": {"a": "r", "b": "r", "c": "r", "d": "s"}}, {"rack": {"a": "r", "b": "r", "c": "s", "d": "s"}}, "c"),
        ({"rack": dict.fromkeys("abc", "r") | {"d": "s"}}, {"rack": dict.fromkeys("abcd", "r")}, "d"),
        ({"rack": dict.fromkeys("abcd", "r")}, {"rack": dict.fromkeys("abc", "r") | {"d": "s"}}, "d"),
    ],
    ids=[
        "same",
        "renamed",
        "names exchanged",
        "one lost",
        "a level lost",
        "a level renamed",
        "gains",
        "moved",
        "joined",
        "split",
    ],
)
def test_a_node_loses_its_place_without_a_domain_or_among_others(before: Places, after: Places, expected: str) -> None:
    assert lost(before, after) == list(expected)


def test_a_node_that_is_gone_loses_nothing() -> None:
    assert lost({"rack": {"a": "r", "b": "r"}}, {"rack": {"b": "r"}}, {"b"}) == []


@pytest.mark.parametrize(
    ("count", "placed", "trips"),
    [(7, 10, False), (8, 10, True), (8, 40, False), (9, 40, True), (20, 100, False), (21, 100, True), (0, 10, False)],
)
def test_it_trips_above_the_percentage_and_from_the_minimum_on(count: int, placed: int, *, trips: bool) -> None:
    places = dict.fromkeys(NAMES[:placed], "r")
    assert judge(after_start(places), without(count, places), NAMES, GUARD, 0.0).tripped is trips


def test_the_same_result_in_all_rounds_confirms_it() -> None:
    state = after_start()
    for now, tripped in ((0.0, True), (59.0, True), (60.0, True), (61.0, True), (119.0, True), (120.0, False)):
        state = judge(state, without(50), NAMES, GUARD, now)
        assert state.tripped is tripped, now
    assert not judge(state, without(55), NAMES, GUARD, 121.0).tripped
    assert judge(state, without(90), NAMES, GUARD, 121.0).tripped


def test_what_comes_back_in_between_is_forgotten() -> None:
    state = judge(after_start(), without(50), NAMES, GUARD, 0.0)
    state = judge(state, without(0), NAMES, GUARD, 30.0)
    assert not state.tripped
    assert judge(state, without(50), NAMES, GUARD, 200.0).rounds == 1


def test_a_flapping_node_does_not_start_the_count_anew_but_many_others_do() -> None:
    state = judge(after_start(), without(50), NAMES, GUARD, 0.0)
    state = judge(state, without(51), NAMES, GUARD, 60.0)
    assert state.rounds == 2
    assert judge(state, without(90), NAMES, GUARD, 120.0).rounds == 1
    assert not judge(state, without(50), NAMES, GUARD, 120.0).tripped


def test_a_loss_that_goes_on_is_not_confirmed_before_it_stops() -> None:
    nodes = [f"n{number:03}" for number in range(400)]
    places = racks(10, nodes)

    def after(gone: int) -> Places:
        return {"rack": {node: places[node] for node in nodes[gone:]}}

    state, now = after_start(places), 0.0
    for gone in range(1, 160):
        now += 5.0
        state = judge(state, after(gone), nodes, GUARD, now)
        assert state.tripped is (gone > 80), gone
    for _ in range(5):
        now += 60.0
        state = judge(state, after(gone), nodes, GUARD, now)
    assert not state.tripped


def test_one_round_is_no_guard() -> None:
    assert not judge(after_start(), without(100), NAMES, TopologyGuard(rounds=1), 0.0).tripped


@pytest.mark.parametrize("rate", [5, 20, 50])
def test_losses_one_after_another_trip_it_when_as_many_are_gone_as_at_once(rate: int) -> None:
    nodes = [f"n{number:03}" for number in range(500)]
    places = racks(18, nodes)
    state, now, gone = after_start(places), 0.0, 0
    while not state.tripped:
        now += 10.0
        gone += 2 * rate
        state = judge(state, {"rack": {node: places[node] for node in nodes[gone:]}}, nodes, GUARD, now)
    assert 100 < gone <= 100 + 2 * rate


def test_nodes_that_are_placed_again_are_no_losses_any_more() -> None:
    state = after_start()
    for number in range(0, 100, 10):
        gone = set(NAMES[number : number + 10])
        places = {"rack": {name: rack for name, rack in racks().items() if name not in gone}}
        state = judge(state, places, NAMES, GUARD, float(number))
        assert not state.tripped
        assert state.losses.nodes == gone


def test_a_loss_counts_for_a_day() -> None:
    state = judge(after_start(), without(15), NAMES, GUARD, 0.0)
    assert judge(state, without(30), NAMES, GUARD, WINDOW_SECONDS - 1).tripped
    state = judge(state, without(30), NAMES, GUARD, WINDOW_SECONDS)
    assert not state.tripped
    assert len(state.losses.nodes) == 15
    assert judge(state, without(36), NAMES, GUARD, WINDOW_SECONDS).tripped


def test_domains_renamed_node_by_node_are_the_same_ones_in_the_end() -> None:
    places, state = racks(), after_start()
    for node in NAMES:
        places = places | {node: f"new-{racks()[node]}"}
        state = judge(state, {"rack": places}, NAMES, GUARD, 0.0)
        assert not state.tripped
    assert not state.losses.nodes


def test_nodes_mixed_anew_one_after_another_trip_it() -> None:
    places, state = racks(), after_start()
    for count, node in enumerate(NAMES[::3], 1):
        places = places | {node: f"r{count % 10}"}
        state = judge(state, {"rack": places}, NAMES, GUARD, 0.0)
        if state.tripped:
            return
    raise AssertionError("a third of the nodes is elsewhere")


def test_what_another_part_of_the_api_server_shows_counts_too() -> None:
    state = judge(after_start(), without(0), NAMES, GUARD, 0.0)
    state = state.seeing({"shelf": racks(), "rack": {"more": "r9"}})
    state = judge(state, {"rack": racks() | {"more": "r9"}}, [*NAMES, "more"], GUARD, 1.0)
    assert state.tripped
    assert state.losses.nodes == set(NAMES)


LEVELS = st.dictionaries(
    st.sampled_from(["rack", "block"]), st.dictionaries(st.sampled_from(NAMES[:12]), st.sampled_from("abcd"))
)


@given(LEVELS, LEVELS)
def test_losses_do_not_depend_on_names_and_are_as_few_as_those_without_a_domain_require(
    before: Places, after: Places
) -> None:
    def renamed(places: Places) -> Places:
        # In the same order, since equal numbers of nodes are decided by it.
        return {level: {node: f"{name}-x" for node, name in domains.items()} for level, domains in places.items()}

    found = set(lost(before, after, set(NAMES)))
    bare = {node for level, domains in before.items() for node in domains if node not in after.get(level, {})}
    assert bare <= found <= {node for domains in before.values() for node in domains}
    assert lost(before, before, set(NAMES)) == lost(before, renamed(before), set(NAMES)) == []
    for level, domains in before.items():
        for domain in set(domains.values()):
            fellows = {node for node, name in domains.items() if name == domain} - found
            assert len({after[level][node] for node in fellows}) <= 1


STEPS = st.lists(st.tuples(st.sets(st.integers(0, 11), max_size=4), st.booleans(), st.integers(0, 60)), max_size=20)


@given(STEPS)
def test_however_small_the_steps_no_more_are_lost_than_at_once_before_the_rounds_have_passed(
    steps: list[tuple[set[int], bool, int]],
) -> None:
    settings = TopologyGuard(percent=30, minimum=2, rounds=3, interval_seconds=60.0)
    places, state, now, since = racks(4, NAMES[:12]), after_start(racks(4, NAMES[:12])), 0.0, None
    wanted = dict(places)
    for positions, lose, seconds in steps:
        now += seconds
        for position in positions:
            wanted.pop(NAMES[position], None)
            if not lose:
                wanted[NAMES[position]] = places[NAMES[position]]
        state = judge(state, {"rack": dict(wanted)}, NAMES, settings, now)
        if state.tripped:
            since = now if since is None else since
            continue
        few = (12 - len(wanted)) * 100 <= 30 * 12
        if not few:
            assert since is not None
            assert now - since >= 120.0
            return
        since = None


def test_places_of_a_tree_are_those_of_domains_that_have_a_name() -> None:
    tree = Tree(
        ("rack", "block"),
        ("a", "b", "c"),
        (
            (Domain(0, "r", "x/r", 0, 0, 2), Domain(0, "", ":c", 1, 2, 3, own=True)),
            (Domain(1, "x", "x", -1, 0, 2), Domain(1, "", ":c", -1, 2, 3, own=True)),
        ),
    )
    assert places_of_tree(tree) == {"rack": {"a": "x/r", "b": "x/r"}, "block": {"a": "x", "b": "x"}}


def test_hypernodes_show_places_at_levels_that_are_not_configured() -> None:
    shown = [HyperNode("r", "rack", (Member("Node", "a"),), 1), HyperNode("s", "shelf", (Member("HyperNode", "r"),), 2)]
    assert places_of_hypernodes(shown) == {"rack": {"a": "r"}, "shelf": {"a": "s"}}


def test_labels_show_places_and_domains_of_a_nodes_own_are_none() -> None:
    rack, block = f"{LEVEL_LABELS}rack", f"{LEVEL_LABELS}block"
    nodes = [("a", {rack: "r1", block: own_label_value("block", "a"), "rack": "x"}), ("b", {block: "node-1"})]
    assert places_of_labels(nodes) == {"rack": {"a": "r1"}, "block": {"b": "node-1"}}
