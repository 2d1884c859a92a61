"""Places of nodes by the HyperNodes of a provider."""

from random import Random

import pytest
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.placements import FaultKind, PlacementFault, Placements, placements
from gkm.topology.quarantine import QuarantineReason
from hypothesis import given
from hypothesis import strategies as st

LEVELS = ("nvlink", "rack", "block")
SECRET = "b8cef603"


def hypernode(name: str, level: str, *members: str) -> HyperNode:
    """A HyperNode; names of nodes begin with n."""
    inside = (Member("Node" if member.startswith("n") else "HyperNode", member) for member in members)
    return HyperNode(name, level, tuple(inside))


def quarantined(found: Placements) -> list[str]:
    assert {entry.why for entry in found.quarantined} <= {QuarantineReason.PROVIDER_CONTRADICTORY}
    return [entry.node for entry in found.quarantined]


def test_a_node_is_in_the_domains_around_it() -> None:
    found = placements([hypernode("d1", "nvlink", "n1"), hypernode("b1", "block", "d1", "n2")], LEVELS)

    assert found == Placements({"n1": ("d1", "", "b1"), "n2": ("", "", "b1")})


def test_a_tier_name_that_is_no_level_connects_only() -> None:
    found = placements(
        [hypernode("d1", "nvlink", "n1"), hypernode("s1", "spine", "d1", "n2"), hypernode("b1", "block", "s1")], LEVELS
    )

    assert found.places == {"n1": ("d1", "", "b1"), "n2": ("", "", "b1")}


def test_a_node_of_two_hypernodes_that_are_not_connected_is_in_both() -> None:
    found = placements([hypernode("d1", "nvlink", "n1"), hypernode("b1", "block", "n1")], LEVELS)

    assert found == Placements({"n1": ("d1", "", "b1")})


@pytest.mark.parametrize(
    ("hypernodes", "kind", "names"),
    [
        (
            [hypernode("d1", "nvlink", "n1"), hypernode("b1", "block", "d1"), hypernode("b2", "block", "d1", "n9")],
            FaultKind.SECOND_PARENT,
            ("d1",),
        ),
        ([hypernode("d1", "nvlink", "n1", "b1"), hypernode("b1", "block", "d1")], FaultKind.CYCLE, ("b1", "d1")),
        ([hypernode("d1", "nvlink", "n1", "d1")], FaultKind.CYCLE, ("d1",)),
        ([hypernode("d1", "nvlink", "n1"), hypernode("d1", "nvlink", "n1")], FaultKind.DUPLICATE_NAME, ("d1",)),
        ([hypernode("d1", "nvlink", "n1"), hypernode("d2", "nvlink", "n1")], FaultKind.SEVERAL_DOMAINS, ("n1",)),
        ([hypernode("d1", "nvlink", "n1"), hypernode("d2", "nvlink", "d1")], FaultKind.SEVERAL_DOMAINS, ("d1",)),
    ],
)
def test_what_contradicts_itself_is_quarantined_and_the_rest_counts(
    hypernodes: list[HyperNode], kind: FaultKind, names: tuple[str, ...]
) -> None:
    found = placements([*hypernodes, hypernode("d7", "nvlink", "n7", "n8")], LEVELS)

    assert found.faults == (PlacementFault(kind, names),)
    assert quarantined(found) == ["n1"]
    assert found.places["n7"] == ("d7", "", "")


def test_all_nodes_below_a_cycle_are_quarantined() -> None:
    found = placements(
        [hypernode("a", "block", "b"), hypernode("b", "rack", "a", "c"), hypernode("c", "nvlink", "n1")], LEVELS
    )

    assert quarantined(found) == ["n1"]


def test_a_missing_member_is_ignored() -> None:
    found = placements([hypernode("b1", "block", "d1", "n1")], LEVELS)

    assert found == Placements({"n1": ("", "", "b1")}, (), (PlacementFault(FaultKind.MISSING_MEMBER, ("d1",)),))


def test_messages_have_no_names_of_the_provider() -> None:
    found = placements(
        [hypernode(SECRET, "nvlink", f"n{SECRET}", SECRET), hypernode(f"a{SECRET}", "rack", f"m{SECRET}")], LEVELS
    )

    assert {fault.kind for fault in found.faults} == {FaultKind.CYCLE, FaultKind.MISSING_MEMBER}
    assert not any(SECRET in fault.message for fault in found.faults)
    assert not any(SECRET in entry.message for entry in found.quarantined)


NAMES = st.sampled_from(["a", "b", "c", "d", "n1", "n2", "n3"])
ANY = st.lists(
    st.builds(
        lambda name, level, members: hypernode(name, level, *members),
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from([*LEVELS, "spine"]),
        st.lists(NAMES, max_size=4),
    ),
    max_size=6,
)


@given(ANY, st.integers())
def test_every_node_has_a_place_or_is_quarantined_in_any_order(hypernodes: list[HyperNode], seed: int) -> None:
    found = placements(hypernodes, LEVELS)

    nodes = {member.name for each in hypernodes for member in each.members if member.kind == "Node"}
    assert sorted([*found.places, *quarantined(found)]) == sorted(nodes)
    assert placements(Random(seed).sample(hypernodes, len(hypernodes)), LEVELS) == found


def test_a_chain_of_hypernodes_needs_no_recursion() -> None:
    chain = [hypernode(f"h{i}", "spine", f"h{i - 1}" if i else "n1") for i in range(20_000)]

    assert placements([*chain, hypernode("b1", "block", "h19999")], LEVELS).places == {"n1": ("", "", "b1")}
