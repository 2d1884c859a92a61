"""The locations of nodes, and the contradictions between their labels."""

from collections.abc import Sequence
from random import Random

from gkm.topology.labels import Claims
from gkm.topology.locations import Location
from gkm.topology.quarantine import Quarantined, QuarantineReason, resolve_locations
from hypothesis import given
from hypothesis import strategies as st

NodeClaims = tuple[str, Claims]


def node_claims(name: str, domain: str = "", block: str = "", rack: str = "", **where: str) -> NodeClaims:
    return name, Claims(where.get("region", "eu"), where.get("cluster", "a"), domain, block, rack, "h100", "")


def reasons(quarantined: Sequence[Quarantined]) -> dict[str, QuarantineReason]:
    return {entry.node: entry.why for entry in quarantined}


def test_labels_locate_a_node() -> None:
    places, aside = resolve_locations([node_claims("n1", "d1", "b1", "r1")])

    assert places == {"n1": Location("eu", "a", "b1", "d1")}
    assert not aside


def test_each_node_without_a_domain_label_is_a_domain_of_its_own() -> None:
    places, aside = resolve_locations([node_claims("n1"), node_claims("n2"), node_claims("n3", domain="n1")])

    assert len({place.domain for place in places.values()}) == 3
    assert len({place.block for place in places.values()}) == 3
    assert places["n1"].domain == "node:n1"
    assert not aside


def test_nodes_without_a_domain_label_are_quarantined_if_configured() -> None:
    places, aside = resolve_locations([node_claims("n1"), node_claims("n2", "d1")], own_domains=False)

    assert set(places) == {"n2"}
    assert reasons(aside) == {"n1": QuarantineReason.NO_FABRIC_DOMAIN}


def test_a_node_without_a_block_label_is_in_the_block_of_its_domain() -> None:
    places, aside = resolve_locations([node_claims("n1", "d1", "b1"), node_claims("n2", "d1"), node_claims("n3", "d2")])

    assert places["n2"] == places["n1"]
    assert places["n3"].block == "domain:d2"
    assert not aside


def test_domains_of_unknown_blocks_share_none() -> None:
    places, _ = resolve_locations([node_claims("n1", "d1"), node_claims("n2", "d2")])

    assert places["n1"].block != places["n2"].block


def test_a_domain_in_two_clusters_is_quarantined_and_the_wrong_label_is_named() -> None:
    nodes = [
        *(node_claims(f"n{number}", "d1") for number in range(9)),
        node_claims("odd", "d1", cluster="b"),
        node_claims("other", "d2"),
    ]

    places, aside = resolve_locations(nodes)

    assert set(places) == {"other"}
    assert set(reasons(aside).values()) == {QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS}
    assert {entry.message for entry in aside} == {
        "domain d1 lies in clusters eu/a (9 nodes), eu/b (odd): it can be in one only"
    }


def test_a_domain_in_two_regions_is_in_two_clusters() -> None:
    _, aside = resolve_locations([node_claims("n1", "d1"), node_claims("n2", "d1", region="us")])

    assert reasons(aside) == dict.fromkeys(["n1", "n2"], QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS)


def test_a_domain_in_two_blocks_is_quarantined_with_nodes_without_a_block_label() -> None:
    _, aside = resolve_locations(
        [node_claims("n1", "d1", "b1"), node_claims("n2", "d1", "b2"), node_claims("n3", "d1")]
    )

    assert reasons(aside) == dict.fromkeys(["n1", "n2", "n3"], QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)


def test_a_domain_in_two_clusters_and_two_blocks_is_reported_by_its_clusters() -> None:
    _, aside = resolve_locations([node_claims("n1", "d1", "b1"), node_claims("n2", "d1", "b2", cluster="b")])

    assert {entry.why for entry in aside} == {QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS}


def test_block_labels_of_quarantined_nodes_do_not_count() -> None:
    nodes = [node_claims("n1", "d1", "b1", "r1"), node_claims("n2", "d1"), node_claims("n3", "d2", "b2", "r1")]

    assert resolve_locations(nodes)[0] == {"n2": Location("eu", "a", "domain:d1", "d1")}


def test_a_rack_in_two_blocks_quarantines_its_nodes_only() -> None:
    nodes = [
        node_claims("n1", "d1", "b1", "r1"),
        node_claims("n2", "d2", "b2", "r1"),
        node_claims("n3", "d1", "b1", "r2"),
    ]

    places, aside = resolve_locations(nodes)

    assert reasons(aside) == dict.fromkeys(["n1", "n2"], QuarantineReason.RACK_IN_SEVERAL_BLOCKS)
    assert places == {"n3": Location("eu", "a", "b1", "d1")}


def test_a_rack_lies_in_the_block_that_its_nodes_have_from_their_domains() -> None:
    nodes = [node_claims("n1", "d1", "b1"), node_claims("n2", "d1", rack="r1"), node_claims("n3", "d2", "b2", "r1")]

    assert reasons(resolve_locations(nodes)[1]) == dict.fromkeys(["n2", "n3"], QuarantineReason.RACK_IN_SEVERAL_BLOCKS)


def test_racks_and_blocks_of_two_clusters_may_share_a_name() -> None:
    nodes = [
        node_claims("n1", "d1", "b1", "r1"),
        node_claims("n2", "d2", "b2", "r1", cluster="b"),
        node_claims("n3", "d3", "b1", cluster="b"),
    ]

    assert not resolve_locations(nodes)[1]


def test_quarantined_nodes_cause_no_contradiction_of_a_rack() -> None:
    nodes = [
        node_claims("n1", "d1", "b1", "r1"),
        node_claims("n2", "d1", "b2", "r1"),
        node_claims("n3", "d2", "b1", "r1"),
    ]

    places, aside = resolve_locations(nodes)

    assert set(reasons(aside).values()) == {QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS}
    assert set(places) == {"n3"}


def test_a_domain_in_many_clusters_gives_a_short_message_with_the_rarest() -> None:
    nodes = [node_claims(f"n{number:03}", "d1", cluster=f"c{min(number, 90):03}") for number in range(100)]

    message = resolve_locations(nodes)[1][0].message

    assert len(message) < 250
    assert "eu/c090 (10 nodes)" in message
    assert "eu/c089 (n089)" in message
    assert "and 88 more" in message


WORDS = st.sampled_from(["", "x", "y", "z"])
NODES = st.lists(
    st.builds(Claims, st.sampled_from(["eu", "us"]), st.sampled_from(["a", "b"]), WORDS, WORDS, WORDS, WORDS, WORDS),
    max_size=12,
).map(lambda claims: [(f"n{number}", one) for number, one in enumerate(claims)])


@given(NODES, st.booleans())
def test_no_node_is_lost_or_in_two_places(nodes: list[NodeClaims], own_domains: bool) -> None:  # noqa: FBT001
    places, aside = resolve_locations(nodes, own_domains=own_domains)

    assert sorted([*places, *(entry.node for entry in aside)]) == sorted(name for name, _ in nodes)


@given(NODES, st.randoms(use_true_random=False))
def test_the_order_of_nodes_does_not_matter(nodes: list[NodeClaims], random: Random) -> None:
    assert resolve_locations(random.sample(nodes, len(nodes))) == resolve_locations(nodes)


@given(NODES)
def test_the_located_nodes_have_no_contradiction(nodes: list[NodeClaims]) -> None:
    claims = dict(nodes)
    places, _ = resolve_locations(nodes)

    assert len(set(places.values())) == len({place.domain for place in places.values()})
    racks = {(p.region, p.cluster, claims[name].rack, p.block) for name, p in places.items() if named(claims[name], p)}
    assert len(racks) == len({rack[:3] for rack in racks})


def named(claims: Claims, place: Location) -> bool:
    """Return whether a node has a rack, and a block that a label names."""
    return bool(claims.rack) and ":" not in place.block


@given(NODES)
def test_a_located_node_is_where_its_own_labels_place_it(nodes: list[NodeClaims]) -> None:
    claims = dict(nodes)
    for name, place in resolve_locations(nodes)[0].items():
        own = claims[name]
        assert (place.region, place.cluster) == (own.region, own.cluster)
        assert place.domain == (own.domain or f"node:{name}")
        assert own.block in ("", place.block)


@given(NODES)
def test_quarantined_nodes_do_not_affect_the_location_of_others(nodes: list[NodeClaims]) -> None:
    places, _ = resolve_locations(nodes)

    assert resolve_locations([node for node in nodes if node[0] in places]) == (places, ())
