"""The order of writes: what the scheduler sees after each of them."""

import tracemalloc
from collections.abc import Iterator, Sequence

import pytest
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees import write_order
from gkm.topology.trees.write_order import Write, ordered_writes
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.trees import NODES, TIERS, VALID, Trees, tree
from support.topology.volcano_rules import doubly_placed, nodes_of, violations


def states(current: Trees, writes: Sequence[Write]) -> Iterator[Trees]:
    """Yield what is on the server after each write.

    The test fails at a write that the API server would refuse, or that makes a valid tree invalid.
    """
    state, was_valid = dict(current), not violations(current)
    for write in writes:
        name = write.hypernode.name
        assert (name in state) == (write.action != "create")
        if write.action == "delete":
            del state[name]
        else:
            assert state.get(name) != write.hypernode, "a write changes something"
            state[name] = write.hypernode
        assert not (was_valid and violations(state))
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


def test_domains_that_exchange_nodes_lose_them_before_they_get_others() -> None:
    one = tree({"n1": ["r1", "b1"], "n2": ["r2", "b1"], "n3": ["r3", "b1"]}, TIERS)
    other = tree({"n1": ["r2", "b1"], "n2": ["r1", "b1"], "n3": ["r3", "b1"]}, TIERS)

    seen = [places(state) for state in states(one, ordered_writes(one, other))]

    assert [sorted(each) for each in seen].count(["n3"]) >= 1
    assert all("n3" in each for each in seen)


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


def test_a_domain_whose_tier_rises_above_that_of_its_former_parent_leaves_it_first() -> None:
    one = tree({"n1": ["d1", "r1", "b1"], "n2": ["d2", "r1", "b1"]}, {"d": 1, "r": 2, "b": 3})
    other = tree({"n1": ["d1", "r1"], "n2": ["d2", "r1"]}, {"d": 3, "r": 4})

    *_, state = states(one, ordered_writes(one, other))

    assert state == other


def test_a_wide_domain_is_written_a_few_times_however_many_of_its_domains_change() -> None:
    before = {f"n{i}": [f"r{i // 2}", "b"] for i in range(640)}
    one, other = tree(before, TIERS), tree({node: [f"{rack}x", "b"] for node, (rack, _) in before.items()}, TIERS)

    writes = ordered_writes(one, other)

    assert sum(write.hypernode.name == "b" for write in writes) <= 2 * 16
    assert min(len(nodes_of(state, "b")) for state in states(one, writes)) >= 640 - 640 // 16


def test_a_tree_that_is_new_or_goes_needs_one_write_of_each_domain() -> None:
    one = tree({f"n{i}": [f"r{i // 2}", f"b{i // 8}", "c"] for i in range(64)}, TIERS)

    assert len(ordered_writes({}, one)) == len(ordered_writes(one, {})) == len(one)


def test_a_widest_level_that_comes_or_goes_leaves_the_others_as_they_are() -> None:
    one = tree({f"n{i}": [f"r{i // 2}", f"b{i // 8}"] for i in range(64)}, TIERS)
    other = tree({f"n{i}": [f"r{i // 2}", f"b{i // 8}", "c"] for i in range(64)}, TIERS)

    assert [write.hypernode.name for write in [*ordered_writes(one, other), *ordered_writes(other, one)]] == ["c", "c"]


@settings(max_examples=examples(400))
@given(VALID, VALID, st.sampled_from([1, 4, 16]))
def test_every_write_leaves_a_valid_tree_without_mixed_domains(one: Trees, other: Trees, share: int) -> None:
    assert not violations(one)
    assert not violations(other)
    state = one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_order, "_SHARE", share)
        writes = ordered_writes(one, other)
    for state in states(one, writes):
        assert not doubly_placed(state, NODES)
        for name in state:
            content = nodes_of(state, name)
            assert content <= nodes_of(one, name) or content <= nodes_of(other, name)
    assert state == other


def edges(state: Trees, node: str) -> set[tuple[str, Member]]:
    """Return the memberships around a node."""
    inside = [Member("Node", node), *(Member("HyperNode", name) for name in around(state, node))]
    return {(name, member) for name, each in state.items() for member in inside if member in each.members}


def around(state: Trees, node: str) -> list[str]:
    return sorted(name for name in state if node in nodes_of(state, name))


@settings(max_examples=examples(200))
@given(VALID, VALID)
def test_a_node_that_moves_nowhere_is_never_out_of_a_domain(one: Trees, other: Trees) -> None:
    still = [node for node in NODES if edges(one, node) == edges(other, node)]
    for state in states(one, ordered_writes(one, other)):
        assert [around(state, node) for node in still] == [around(one, node) for node in still]


@settings(max_examples=examples(200))
@given(VALID, VALID, st.data())
def test_a_pass_that_ends_anywhere_is_continued_by_the_next(one: Trees, other: Trees, data: st.DataObject) -> None:
    seen = [one, *states(one, ordered_writes(one, other))]
    stopped = data.draw(st.sampled_from(seen))

    *_, state = [stopped, *states(stopped, ordered_writes(stopped, other))]
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


def chain(length: int) -> Trees:
    """Return domains of one node each, of which each but the first has the one before it inside."""
    found = {"h0": HyperNode("h0", "x", (Member("Node", "n0"),), 1)}
    for tier in range(1, length):
        members = (Member("HyperNode", f"h{tier - 1}"), Member("Node", f"n{tier}"))
        found[f"h{tier}"] = HyperNode(f"h{tier}", "x", members, tier + 1)
    return found


def test_a_chain_that_others_made_takes_no_memory_for_each_pair_of_its_domains() -> None:
    long, short, wanted = chain(1500), chain(150), tree({"n1": ["r1"]}, TIERS)

    tracemalloc.start()
    ordered_writes(long, wanted)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * 2**20
    # The rules of the scheduler are checked after each write, which takes the square of the length.
    *_, state = states(short, ordered_writes(short, wanted))
    assert state == wanted


def test_a_large_domain_that_others_made_twice_becomes_one() -> None:
    """Linear: a look for each member in all others would take a minute."""
    wanted = tree({f"n{i}": ["r1"] for i in range(12_500)}, TIERS)
    twice = wanted | {"r2": HyperNode("r2", "r", wanted["r1"].members, 1)}

    assert [(write.action, write.hypernode.name) for write in ordered_writes(twice, wanted)] == [("delete", "r2")]
