"""The locations of nodes, and the contradictions between their labels."""

from collections.abc import Sequence
from random import Random

import pytest
from gkm.api.topology_settings import Topology
from gkm.topology.labels import Claims
from gkm.topology.locations import Location
from gkm.topology.nodes import Node
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import survey_nodes
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import node

NodeClaims = tuple[str, Claims]
UUID = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"
CLIQUE = f"{UUID}.1"


def node_claims(name: str, domain: str = "", block: str = "", rack: str = "", **where: str) -> NodeClaims:
    return name, Claims(where.get("region", "eu"), where.get("cluster", "a"), domain, block, rack, "h100", "")


def resolve_locations(
    nodes: Sequence[NodeClaims], *, own_domains: bool = True
) -> tuple[dict[str, Location], tuple[Quarantined, ...]]:
    """Return the location of each node by its labels alone, and the quarantined nodes."""
    settings = Topology(missing_fabric="own" if own_domains else "quarantine")
    found = survey_nodes([_labeled(name, claims) for name, claims in nodes], settings)
    return {each.node.name: each.location for each in found.located}, found.quarantined


def _labeled(name: str, claims: Claims) -> Node:
    keys = ("region", "cluster", "fabric.domain", "block", "rack", "gpu.flavor", "gkm.io/fabric-health")
    return node(name, {key: value for key, value in zip(keys, claims, strict=True) if value})


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


@pytest.mark.parametrize("where", [{"cluster": "b"}, {"region": "us"}])
def test_clusters_and_regions_may_each_have_a_domain_of_one_name(where: dict[str, str]) -> None:
    places, aside = resolve_locations([node_claims("n1", "A", "b1"), node_claims("n2", "A", "b2", **where)])

    assert not aside
    assert places["n1"] == Location("eu", "a", "b1", "A")
    assert places["n2"] == Location(where.get("region", "eu"), where.get("cluster", "a"), "b2", "A")
    assert places["n1"].key != places["n2"].key


def test_a_block_of_one_cluster_says_nothing_about_a_domain_of_that_name_in_another() -> None:
    places, _ = resolve_locations([node_claims("n1", "A", "b1"), node_claims("n2", "A", cluster="b")])

    assert places["n2"] == Location("eu", "b", "domain:A", "A")


def test_a_contradiction_in_one_cluster_quarantines_no_domain_of_that_name_in_another() -> None:
    nodes = [
        node_claims("n1", "A", "b1"),
        node_claims("n2", "A", "b2"),
        node_claims("n3", "A", "b1", cluster="b"),
    ]

    places, aside = resolve_locations(nodes)

    assert reasons(aside) == dict.fromkeys(["n1", "n2"], QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)
    assert set(places) == {"n3"}
    assert aside[0].message == "domain a/A lies in blocks a/b1 (n1), b2 (n2): it can be in one only"


@pytest.mark.parametrize("name", [UUID, CLIQUE, CLIQUE.upper()])
def test_a_uuid_is_one_domain_wherever_it_is(name: str) -> None:
    inside = resolve_locations([node_claims("n1", name), node_claims("n2", name)])[0]
    assert inside["n1"].key == inside["n2"].key == ("", "", name)
    for where, why in (
        ({"cluster": "b"}, QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS),
        ({"region": "us"}, QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS),
        ({"region": "us", "cluster": "b"}, QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS),
    ):
        _, aside = resolve_locations([node_claims("n1", name), node_claims("n2", name, **where)])
        assert reasons(aside) == dict.fromkeys(["n1", "n2"], why)


@pytest.mark.parametrize("name", [f"x{UUID}", f"{UUID}.x", UUID.replace("-", ""), f"{UUID}.12345678901"])
def test_what_only_resembles_a_uuid_is_a_name_of_its_cluster(name: str) -> None:
    assert not resolve_locations([node_claims("n1", name), node_claims("n2", name, cluster="b")])[1]


def test_a_clique_in_two_clusters_is_quarantined_and_the_wrong_label_is_named() -> None:
    nodes = [
        *(node_claims(f"n{number}", CLIQUE) for number in range(9)),
        node_claims("odd", CLIQUE, cluster="b"),
        node_claims("other", "d2"),
    ]

    places, aside = resolve_locations(nodes)

    assert set(places) == {"other"}
    assert set(reasons(aside).values()) == {QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS}
    assert {entry.message for entry in aside} == {
        f"domain {CLIQUE} lies in clusters a (9 nodes), b (odd): it can be in one only"
    }


def test_a_clique_in_two_regions_names_the_regions() -> None:
    _, aside = resolve_locations([node_claims("n1", CLIQUE), node_claims("n2", CLIQUE, region="us")])

    assert aside[0].message == f"domain {CLIQUE} lies in regions eu (n1), us (n2): it can be in one only"


def test_a_domain_in_two_blocks_is_quarantined_with_nodes_without_a_block_label() -> None:
    _, aside = resolve_locations(
        [node_claims("n1", "d1", "b1"), node_claims("n2", "d1", "b2"), node_claims("n3", "d1")]
    )

    assert reasons(aside) == dict.fromkeys(["n1", "n2", "n3"], QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)


def test_a_domain_in_two_clusters_and_two_blocks_is_reported_by_its_clusters() -> None:
    _, aside = resolve_locations([node_claims("n1", CLIQUE, "b1"), node_claims("n2", CLIQUE, "b2", cluster="b")])

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
    nodes = [node_claims(f"n{number:03}", CLIQUE, cluster=f"c{min(number, 90):03}") for number in range(100)]

    message = resolve_locations(nodes)[1][0].message

    assert len(message) < 300
    assert "c090 (10 nodes)" in message
    assert "c089 (n089)" in message
    assert "and 88 more" in message


WORDS = st.sampled_from(["", "x", "y", "z"])
DOMAINS = st.sampled_from(["", "x", "y", "z", UUID, CLIQUE])


def nodes_of(domains: st.SearchStrategy[str]) -> st.SearchStrategy[list[NodeClaims]]:
    regions, clusters = st.sampled_from(["eu", "us"]), st.sampled_from(["a", "b"])
    claims = st.builds(Claims, regions, clusters, domains, WORDS, WORDS, WORDS, WORDS)
    return st.lists(claims, max_size=12).map(lambda found: [(f"n{number}", one) for number, one in enumerate(found)])


NODES = nodes_of(DOMAINS)


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

    # The rule in words: a name is one domain of each cluster, a UUID one domain of all of them.
    assert len(set(places.values())) == len(
        {place.domain if UUID in place.domain else (*place[:2], place.domain) for place in places.values()}
    )
    racks = {(p.region, p.cluster, claims[name].rack, p.block) for name, p in places.items() if named(claims[name], p)}
    assert len(racks) == len({rack[:3] for rack in racks})


def named(claims: Claims, place: Location) -> bool:
    """Return whether a node has a rack, and a block that a label names."""
    return bool(claims.rack) and ":" not in place.block


@given(nodes_of(WORDS))
def test_each_cluster_is_resolved_as_if_it_were_alone(nodes: list[NodeClaims]) -> None:
    places, aside = resolve_locations(nodes)

    for cluster in {claims[:2] for _, claims in nodes}:
        alone = [node for node in nodes if node[1][:2] == cluster]
        names = {name for name, _ in alone}
        located, quarantined = resolve_locations(alone)
        assert located == {name: place for name, place in places.items() if name in names}
        # The messages differ: beside another cluster with such a name, they name the cluster too.
        assert reasons(quarantined) == reasons([entry for entry in aside if entry.node in names])


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
