"""The order of writes: what the scheduler sees after each of them."""

from collections.abc import Iterator, Sequence

import pytest
from gkm.topology import write_order
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.write_order import Write, ordered_writes
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.trees import NODES, TIERS, VALID, Trees, tree
from support.topology.volcano_rules import doubly_placed, nodes_of, violations


def states(current: Trees, writes: Sequence[Write]) -> Iterator[Trees]:
    """Yield what is on the server after each write; a write that the API server would refuse fails the test."""
    state = dict(current)
    for write in writes:
        name = write.hypernode.name
        assert (name in state) == (write.action != "create")
        if write.action == "delete":
            del state[name]
        else:
            assert state.get(name) != write.hypernode, "a write changes something"
            state[name] = write.hypernode
        yield dict(state)


def places(state: Trees) -> set[str]:
    return {node for name in state for node in nodes_of(state, name)}


def test_a_node_that_moves_is_removed_and_then_added() -> None:
    one = tree({"n1": ["r1"], "n2": ["r1"], "n3": ["r2"]}, TIERS)
    other = tree({"n1": ["r1"], "n2": ["r2"], "n3": ["r2"]}, TIERS)

    writes = ordered_writes(one, other)

    assert [(write.action, write.hypernode.name) for write in writes] == [("update", "r1"), ("update", "r2")]


def test_equal_trees_need_no_write() -> None:
    one = tree({"n1": ["r1", "b1"], "n2": ["r1", "b1"]}, TIERS)

    assert ordered_writes(one, dict(one)) == []


def test_a_rack_that_moves_remains_whole() -> None:
    before = {"n1": ["r1", "b1"], "n2": ["r1", "b1"], "n3": ["r2", "b1"], "n4": ["r3", "b2"]}
    after = before | {"n1": ["r1", "b2"], "n2": ["r1", "b2"]}

    one, other = tree(before, TIERS), tree(after, TIERS)

    assert all(state["r1"] == one["r1"] for state in states(one, ordered_writes(one, other)))


def test_nodes_of_single_leaves_that_swap_are_out_one_after_the_other() -> None:
    one = tree({"n1": ["r1", "b1"], "n2": ["r2", "b1"], "n3": ["r3", "b1"]}, TIERS)
    other = tree({"n1": ["r2", "b1"], "n2": ["r1", "b1"], "n3": ["r3", "b1"]}, TIERS)

    seen = [places(state) for state in states(one, ordered_writes(one, other))]

    assert min(map(len, seen)) == 2


@pytest.mark.parametrize("prefix", ["r", "b", "rb", "rbc"])
def test_new_names_of_all_domains_take_the_nodes_of_one_leaf_out_at_a_time(prefix: str) -> None:
    before = {f"n{i}": [f"r{i // 2}", f"b{i // 8}", "c"] for i in range(32)}
    after = {node: [f"{name}x" if name[0] in prefix else name for name in domains] for node, domains in before.items()}
    one, other = tree(before, TIERS), tree(after, TIERS)

    for state in states(one, ordered_writes(one, other)):
        whole = nodes_of(state, "c") | nodes_of(state, "cx")
        assert len(whole) >= 32 - (2 if prefix != "b" else 8)


def test_a_new_closest_level_takes_the_nodes_of_one_domain_out_at_a_time() -> None:
    one = tree({f"n{i}": [f"r{i // 8}", "b"] for i in range(32)}, {"r": 1, "b": 2})
    other = tree({f"n{i}": [f"d{i // 4}", f"r{i // 8}", "b"] for i in range(32)}, {"d": 1, "r": 2, "b": 3})

    assert min(len(nodes_of(state, "b")) for state in states(one, ordered_writes(one, other))) >= 28
    assert min(len(nodes_of(state, "b")) for state in states(other, ordered_writes(other, one))) >= 28


@settings(max_examples=examples(400))
@given(VALID, VALID, st.sampled_from([2, 256]))
def test_every_write_leaves_a_valid_tree_without_mixed_domains(one: Trees, other: Trees, large: int) -> None:
    assert not violations(one)
    assert not violations(other)
    state = one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_order, "_LARGE", large)
        patch.setattr(write_order, "_SHARE", 2)
        writes = ordered_writes(one, other)
    for state in states(one, writes):
        assert not violations(state)
        assert not doubly_placed(state, NODES)
        for name in state:
            content = nodes_of(state, name)
            assert content <= nodes_of(one, name) or content <= nodes_of(other, name)
    assert state == other


@settings(max_examples=examples(200))
@given(VALID, VALID, st.data())
def test_a_pass_that_ends_anywhere_is_continued_by_the_next(one: Trees, other: Trees, data: st.DataObject) -> None:
    seen = [one, *states(one, ordered_writes(one, other))]
    stopped = data.draw(st.sampled_from(seen))

    state = stopped
    for state in states(stopped, ordered_writes(stopped, other)):
        assert not violations(state)
    assert state == other


MEMBERS = st.builds(
    Member, st.sampled_from(["Node", "HyperNode"]), st.sampled_from(["r1", "r2", "b1", "b2", "c1", *NODES])
)
ANYTHING = st.dictionaries(
    st.sampled_from(["r1", "r2", "b1", "b2", "c1"]),
    st.tuples(st.lists(MEMBERS, max_size=4, unique=True), st.integers(0, 4)),
).map(lambda found: {name: HyperNode(name, "x", tuple(members), tier) for name, (members, tier) in found.items()})


@settings(max_examples=examples(300))
@given(ANYTHING, VALID)
def test_whatever_others_made_of_our_objects_becomes_the_wanted_tree(broken: Trees, other: Trees) -> None:
    *_, state = [broken, *states(broken, ordered_writes(broken, other))]

    assert {name: (set(each.members), each.tier) for name, each in state.items()} == {
        name: (set(each.members), each.tier) for name, each in other.items()
    }
