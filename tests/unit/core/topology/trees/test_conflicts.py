"""HyperNodes of other sources beside ours: what is left out, what is reported; the whole set stays valid."""

from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees.conflicts import ConflictKind, compatible, conflicts
from hypothesis import assume, given
from hypothesis import strategies as st
from support.topology.volcano_rules import violations

Set = dict[str, HyperNode]


def nodes(name: str, tier: int, *members: str) -> HyperNode:
    return HyperNode(name, f"t{tier}", tuple(Member("Node", one) for one in members), tier)


def above(name: str, tier: int, *members: str, tier_name: str = "") -> HyperNode:
    return HyperNode(name, tier_name or f"t{tier}", tuple(Member("HyperNode", one) for one in members), tier)


def named(*hypernodes: HyperNode) -> Set:
    return {hypernode.name: hypernode for hypernode in hypernodes}


OURS = named(nodes("r1", 1, "a", "b"), nodes("r2", 1, "c"), above("b1", 2, "r1", "r2"))


def found(foreign: Set) -> list[tuple[str, str]]:
    return [(one.kind, one.about) for one in conflicts(OURS, foreign)]


def test_beside_nothing_everything_is_written_as_it_is() -> None:
    assert compatible(OURS, {}) == OURS
    assert conflicts(OURS, {}) == ()


def test_a_taken_name_is_left_out_with_its_membership() -> None:
    taken = named(nodes("r1", 7, "z"))
    assert compatible(OURS, taken) == named(nodes("r2", 1, "c"), above("b1", 2, "r2"))
    assert found(taken) == [(ConflictKind.NAME_TAKEN, "r1")]


def test_a_parent_that_loses_all_members_is_left_out_too() -> None:
    ours = named(nodes("r1", 1, "a"), above("b1", 2, "r1"), above("g", 3, "b1"))
    assert compatible(ours, named(nodes("r1", 1, "z"))) == {}


def test_what_a_foreign_parent_has_gets_no_parent_of_ours() -> None:
    parent = named(above("other", 5, "r1"))
    assert compatible(OURS, parent) == named(*OURS.values()) | named(above("b1", 2, "r2"))
    assert found(parent) == [(ConflictKind.SECOND_PARENT, "r1")]


def test_below_a_foreign_parent_without_a_higher_tier_or_below_two_it_is_left_out() -> None:
    without = named(nodes("r2", 1, "c"), above("b1", 2, "r2"))
    assert compatible(OURS, named(above("low", 1, "r1"))) == without
    assert compatible(OURS, named(above("one", 5, "r1"), above("two", 5, "r1"))) == without


def test_nodes_in_a_foreign_hypernode_are_reported_and_written_all_the_same() -> None:
    shares = named(nodes("manual", 1, "a"))
    assert compatible(OURS, shares) == OURS
    assert found(shares) == [(ConflictKind.NODE_IN_SEVERAL_DOMAINS, "a")]


def test_a_tier_name_of_another_tier_is_reported() -> None:
    assert found(named(above("other", 5, "x", tier_name="t1"))) == [(ConflictKind.TIER_NAME_WITH_SEVERAL_TIERS, "t1")]


def test_foreign_hypernodes_that_are_invalid_among_themselves_are_reported() -> None:
    foreign = named(above("one", 5, "x"), above("two", 5, "x"), nodes("x", 1, "z"))
    assert found(foreign) == [(ConflictKind.SECOND_PARENT, "x")]
    assert compatible(OURS, foreign) == OURS


def test_what_others_share_among_themselves_is_their_own_business() -> None:
    assert found(named(nodes("one", 1, "z"), nodes("two", 1, "z"))) == []


NAMES = st.sampled_from(["r1", "r2", "b1", "f1", "f2"])
FOREIGN = st.dictionaries(NAMES, st.tuples(st.integers(0, 4), st.sets(NAMES, max_size=3)), max_size=4)


@given(FOREIGN)
def test_beside_foreign_ones_that_are_valid_the_whole_set_is(kinds: dict[str, tuple[int, set[str]]]) -> None:
    foreign = {
        name: HyperNode(name, "", tuple(Member("HyperNode", one) for one in sorted(members)), tier)
        for name, (tier, members) in kinds.items()
    }
    assume(not harmful(foreign))
    assert harmful(compatible(OURS, foreign) | foreign) == []


def harmful(hypernodes: Set) -> list[str]:
    """The violations that others can cause by what they have, not by what they lack."""
    lacks = ("which does not exist", "has no member")
    return [one for one in violations(hypernodes) if not any(text in one for text in lacks)]


def test_an_object_that_cannot_be_read_is_named_so_whoever_wrote_it() -> None:
    (conflict,) = conflicts(OURS, {}, {"r1"})
    assert (conflict.kind, conflict.message) == (
        ConflictKind.UNREADABLE,
        "HyperNode r1 cannot be read, so its members are not known; delete it",
    )
