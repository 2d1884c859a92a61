"""HyperNodes that the API server refuses to change, and the writes around them."""

from collections.abc import Callable, Mapping

from gkm.topology.hypernodes import HyperNode
from gkm.topology.trees.conflicts import compatible
from gkm.topology.trees.write_order import Write, ordered_writes, writes_around
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.trees import NODES, TIERS, VALID, Trees, tree
from support.topology.volcano_rules import doubly_placed, nodes_of, violations

Refuses = Callable[[Write], bool]
_PASSES = 40


def settled(current: Trees, wanted: Trees, refuses: Refuses, adopted: frozenset[str] = frozenset()) -> Trees:
    """What is on the server after the passes of a writer, each of which ends with a refusal or with its last write."""
    state, refused = dict(current), set[str]()
    for _ in range(_PASSES):
        missing = {name: HyperNode(name, "", ()) for name in refused - state.keys()}
        writes = writes_around(state, compatible(wanted, missing), refused, adopted)
        if not writes:
            return state
        for write in writes:
            name = write.hypernode.name
            assert name not in refused
            if refuses(write):
                refused.add(name)
                break
            state = {each: found for each, found in state.items() if each != name}
            if write.action != "delete":
                state[name] = write.hypernode
            assert not violations(state)
            assert not doubly_placed(state, NODES)
    raise AssertionError("it does not settle")


def placed(state: Trees, node: str) -> set[str]:
    return {name for name in state if node in nodes_of(state, name)}


RACKS: Mapping[str, list[str]] = {"n0": ["r0", "b0"], "n1": ["r0", "b0"], "n2": ["r1", "b0"], "n3": ["r2", "b1"]}


def test_a_node_of_a_rack_that_may_not_change_stays_there_and_the_rack_stays_in_its_block() -> None:
    one, other = tree(RACKS, TIERS), tree({**RACKS, "n1": ["r1", "b0"]}, TIERS)

    assert settled(one, other, lambda write: write.hypernode.name == "r0") == one


def test_a_rack_that_may_not_be_deleted_keeps_its_nodes_and_comes_to_their_block() -> None:
    one, other = tree(RACKS, TIERS), tree({**RACKS, "n0": ["r2", "b1"], "n1": ["r2", "b1"]}, TIERS)

    state = settled(one, other, lambda write: write.hypernode.name == "r0")

    assert state["r0"] == one["r0"]
    assert [placed(state, node) for node in ("n0", "n1")] == [{"r0", "b1"}, {"r0", "b1"}]


def test_a_rack_whose_block_is_renamed_comes_below_the_new_one() -> None:
    one, other = tree(RACKS, TIERS), tree({**RACKS, "n0": ["r0", "b2"], "n1": ["r1", "b2"], "n2": ["r1", "b2"]}, TIERS)

    state = settled(one, other, lambda write: write.hypernode.name == "r0")

    assert (placed(state, "n0"), placed(state, "n2")) == ({"r0", "b2"}, {"r1", "b2"})
    assert placed(state, "n1") == {"r0", "b2"}


def test_a_rack_in_a_block_that_may_not_change_gets_its_nodes_all_the_same() -> None:
    one = tree(RACKS, TIERS)
    other = tree({"n0": ["r0", "b0"], "n1": ["r1", "b1"], "n2": ["r1", "b1"], "n3": ["r2", "b1"]}, TIERS)

    state = settled(one, other, lambda write: write.hypernode.name == "b0")

    assert state["b0"] == one["b0"]
    assert placed(state, "n1") == {"r1", "b0"}


def test_a_rack_that_is_to_be_wider_than_a_block_that_may_not_change_stays_as_it_is() -> None:
    one, other = tree(RACKS, TIERS), tree({node: [rack] for node, (rack, _) in RACKS.items()}, {"r": 4})

    state = settled(one, other, lambda write: write.hypernode.name == "b0")

    assert {name: state[name] for name in ("b0", "r0", "r1")} == {name: one[name] for name in ("b0", "r0", "r1")}
    assert state["r2"] == other["r2"]


def test_members_that_others_added_to_what_may_not_change_stop_no_other_write() -> None:
    one, other = tree(RACKS, TIERS), tree({**RACKS, "n4": ["r3", "b1"]}, TIERS)
    one["r0"] = HyperNode(
        "r0", "r", (*one["r0"].members, *tree({"n": ["gone", "x"]}, {"g": 1, "x": 2})["x"].members), 1
    )

    writes = writes_around(one, other, {"r0"})

    assert [write.hypernode.name for write in writes] == ["r3", "b1"]


REFUSED = st.sets(
    st.tuples(
        st.sampled_from(["create", "update", "delete"]), st.sampled_from([f"{a}{i}" for a in "drbc" for i in "123"])
    )
)


@settings(max_examples=examples(200))
@given(VALID, VALID, REFUSED)
def test_whatever_is_refused_the_tree_is_valid_and_once_nothing_is_refused_it_is_the_wanted_one(
    one: Trees, other: Trees, refused: set[tuple[str, str]]
) -> None:
    state = settled(one, other, lambda write: (write.action, write.hypernode.name) in refused)

    assert settled(state, other, lambda _: False) == other


@settings(max_examples=examples(100))
@given(VALID, VALID, st.data())
def test_a_write_that_is_refused_changes_nothing_but_what_is_around_it(
    one: Trees, other: Trees, data: st.DataObject
) -> None:
    writes = ordered_writes(one, other)
    name = data.draw(st.sampled_from([write.hypernode.name for write in writes] or ["r1"]))

    state = settled(one, other, lambda write: write.hypernode.name == name)

    assert state.get(name) == one.get(name)
