"""What is invalid in a set of HyperNodes of all sources."""

from gkm.topology.hypernodes import HyperNode, Member, forest
from gkm.topology.trees.conflicts import Conflict, ConflictKind, invalid
from hypothesis import given
from hypothesis import strategies as st
from support.topology.volcano_rules import doubly_placed, violations, with_two_tiers


def hypernode(name: str, tier: int, *members: str) -> HyperNode:
    """A HyperNode whose tier name is its tier; names of nodes begin with n."""
    inside = (Member("Node" if member.startswith("n") else "HyperNode", member) for member in members)
    return HyperNode(name, f"tier-{tier}", tuple(inside), tier)


def problems(hypernodes: list[HyperNode]) -> tuple[Conflict, ...]:
    return tuple(sorted(invalid(forest(hypernodes))))


def test_a_tree_has_no_problem() -> None:
    tree = [hypernode("b1", 2, "r1", "r2", "n5"), hypernode("r1", 1, "n1", "n2"), hypernode("r2", 1, "n3")]

    assert problems(tree) == ()


def test_a_second_parent_is_named_with_both() -> None:
    tree = [hypernode("b1", 2, "r1"), hypernode("b2", 2, "r1"), hypernode("r1", 1, "n1")]

    assert problems(tree) == (Conflict(ConflictKind.SECOND_PARENT, "r1", ("b1", "b2")),)


def test_a_cycle_and_its_tiers_are_reported() -> None:
    found = problems([hypernode("a", 1, "b"), hypernode("b", 2, "a")])

    assert found == (
        Conflict(ConflictKind.CYCLE, "a", ("b",)),
        Conflict(ConflictKind.CYCLE, "b", ("a",)),
        Conflict(ConflictKind.TIER_DOES_NOT_RISE, "b", ("a",)),
    )


def test_what_a_set_lacks_is_no_conflict() -> None:
    """Another source may not have written it yet, and nothing of ours can help."""
    assert problems([hypernode("b1", 2, "r1", "n1"), hypernode("r2", 1)]) == ()


def test_a_tier_name_of_two_tiers_is_reported_with_one_hypernode_of_each() -> None:
    tree = [HyperNode(f"r{i}", "rack", (Member("Node", f"n{i}"),), 1 + i // 2) for i in range(4)]

    assert problems(tree) == (Conflict(ConflictKind.TIER_NAME_WITH_SEVERAL_TIERS, "rack", ("r0", "r2")),)


def test_a_node_in_two_racks_is_reported() -> None:
    tree = [hypernode("r1", 1, "n1", "n2"), hypernode("r2", 1, "n2"), hypernode("b1", 2, "r1", "r2")]

    assert problems(tree) == (Conflict(ConflictKind.NODE_IN_SEVERAL_DOMAINS, "n2", ("r1", "r2")),)


def test_a_node_of_a_cycle_and_of_another_hypernode_is_reported() -> None:
    found = problems([hypernode("a", 1, "a", "n1"), hypernode("r1", 1, "n1")])

    assert Conflict(ConflictKind.NODE_IN_SEVERAL_DOMAINS, "n1", ("a", "r1")) in found


def test_a_node_in_a_rack_and_directly_in_the_block_of_the_rack_is_no_problem() -> None:
    assert problems([hypernode("r1", 1, "n1"), hypernode("b1", 2, "r1", "n1")]) == ()


NAMES = ["a", "b", "c", "d", "e"]
ANY = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(st.integers(0, 4), st.lists(st.sampled_from([*NAMES, "n1", "n2"]), unique=True, max_size=3)),
).map(lambda found: [hypernode(name, tier, *members) for name, (tier, members) in found.items()])


@given(ANY)
def test_the_problems_are_those_of_the_scheduler(hypernodes: list[HyperNode]) -> None:
    by_name = {each.name: each for each in hypernodes}
    fatal = {ConflictKind.SECOND_PARENT, ConflictKind.CYCLE, ConflictKind.TIER_DOES_NOT_RISE}

    found = problems(hypernodes)

    lacks = ("which does not exist", "has no member")
    wrong = [one for one in violations(by_name) if not any(text in one for text in lacks)]
    assert any(problem.kind in fatal for problem in found) == bool(wrong)
    tier_names = {each.about for each in found if each.kind is ConflictKind.TIER_NAME_WITH_SEVERAL_TIERS}
    assert tier_names == with_two_tiers(by_name)
    if not violations(by_name):
        twice = [each.about for each in found if each.kind is ConflictKind.NODE_IN_SEVERAL_DOMAINS]
        assert twice == doubly_placed(by_name, ["n1", "n2"])


def test_a_chain_of_ten_thousand_hypernodes_needs_no_recursion() -> None:
    chain = [hypernode(f"h{i}", i, f"h{i - 1}" if i else "n1") for i in range(10_000)]

    assert problems(chain) == ()
