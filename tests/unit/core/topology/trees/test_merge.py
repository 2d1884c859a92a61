"""The merge of several providers into one tree."""

import pytest
from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.placements import Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.trees.merge import Merge, build_tree
from gkm.topology.trees.nesting import Rows
from gkm.topology.trees.tree import Contradiction, Tree
from support.topology.tree_queries import places, reasons, together

SETTINGS = Topology(levels=[TopologyLevel(name) for name in ("nvlink", "block", "cluster")])
DEFAULTS = Topology()
UUID = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"
CLIQUE, OTHER_CLIQUE = f"{UUID}.1", f"{UUID}.2"
SCOPED = Topology(
    levels=[TopologyLevel("nvlink"), TopologyLevel("rack", unique="parent"), TopologyLevel("block")],
)


def provider(name: str, **places: str) -> tuple[str, Placements]:
    """A provider with the places of nodes, as names with slashes between them; a dash is no domain."""
    split = {node: tuple("" if part == "-" else part for part in place.split("/")) for node, place in places.items()}
    return name, Placements(split)


def paths(tree: Tree) -> dict[str, str]:
    """Return the domains of each node, a dash for an own one."""
    return {name: "/".join(part or "-" for part in place) for name, place in places(tree).items()}


def test_the_first_provider_that_places_a_node_at_a_level_decides() -> None:
    tree = build_tree([provider("ufm", n1="-/b1/-"), provider("labels", n1="d1/b2/c", n2="d2/b2/c")], SETTINGS)

    assert paths(tree) == {"n1": "d1/b1/c", "n2": "d2/b2/c"}
    assert not tree.quarantined


def test_a_source_that_places_a_node_elsewhere_is_reported() -> None:
    tree = build_tree(
        [provider("ufm", n1="-/b1/-", n2="-/b1/-"), provider("labels", n1="d1/b2/c", n2="d1/b3/c", n3="d2/b2/c")],
        SETTINGS,
    )

    assert paths(tree) == {"n1": "d1/b1/c", "n2": "d1/b1/c", "n3": "d2/b2/c"}
    assert tree.contradictions == (
        Contradiction("block", "labels", "2 nodes lie in another block by ufm, which comes first: n1, n2"),
    )


@pytest.mark.parametrize("rack", ["rack-1", CLIQUE])
def test_a_clique_that_nvml_measured_outranks_a_name_that_was_written(rack: str) -> None:
    written = provider("tree-file", n1=f"{rack}/b1/c", n2=f"{rack}/b1/c")
    tree = build_tree([written, provider("labels", n1=f"{OTHER_CLIQUE}/-/-")], SETTINGS)

    assert paths(tree)["n2"] == f"{rack}/b1/c"
    if rack == CLIQUE:
        assert paths(tree)["n1"] == f"{rack}/b1/c"
        assert [(entry.level, entry.provider) for entry in tree.contradictions] == [("nvlink", "labels")]
    else:
        assert paths(tree)["n1"] == f"{OTHER_CLIQUE}/b1/c"
        assert tree.contradictions == (
            Contradiction(
                "nvlink", "tree-file", "1 node lies in another nvlink by labels, whose domain NVML measured: n1"
            ),
        )


def test_strongest_rows_that_differ_leave_the_parent_unknown_whatever_later_sources_say() -> None:
    tree = build_tree(
        [provider("a", n1="d1/-/-", n2="d1/-/-"), provider("b", n1="-/b1/-", n2="-/b2/-"), provider("c", n3="d1/b3/-")],
        SETTINGS,
    )

    assert paths(tree) == dict.fromkeys(("n1", "n2", "n3"), "d1/-/-")
    assert [entry.provider for entry in tree.contradictions] == ["b", "b", "c"]


def test_a_source_that_contradicts_itself_about_a_domain_quarantines_it_although_an_earlier_one_has_nodes_there() -> (
    None
):
    tree = build_tree([provider("a", n1="d1/-/-"), provider("b", n1="-/b1/-", n2="d1/b2/-", n3="d1/b3/-")], SETTINGS)

    assert reasons(tree.quarantined) == dict.fromkeys(("n1", "n2", "n3"), QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)


def test_a_node_without_a_domain_is_a_domain_of_its_own() -> None:
    tree = build_tree([provider("labels", n1="-/-/c", n2="-/-/c")], SETTINGS, unplaced=["n3"])

    assert paths(tree) == {"n1": "-/-/c", "n2": "-/-/c", "n3": "-/-/-"}
    assert len(tree.domains[0]) == len(tree.domains[1]) == 3


def test_a_domain_without_a_block_is_one_block_of_its_own() -> None:
    tree = build_tree([provider("labels", n1="d1/-/c", n2="d1/-/c", n3="d2/-/c")], SETTINGS)

    assert together(tree, 1, "n1", "n2")
    assert not together(tree, 1, "n1", "n3")


def test_a_node_without_a_block_is_in_the_block_of_its_domain() -> None:
    assert paths(build_tree([provider("labels", n1="d1/b1/c", n2="d1/-/-")], SETTINGS))["n2"] == "d1/b1/c"


def test_a_contradiction_of_one_provider_quarantines_the_domain_with_a_message() -> None:
    tree = build_tree(
        [provider("labels", n1="d1/b1/c", n2="d1/b1/c", n3="d1/b1/c", n4="d1/b1/c", n5="d1/b2/c", n6="d2/b2/c")],
        SETTINGS,
    )

    assert paths(tree) == {"n6": "d2/b2/c"}
    assert set(reasons(tree.quarantined).values()) == {QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS}
    assert "domain d1 lies in blocks b1 (4 nodes), b2 (n5)" in tree.quarantined[0].message


def test_a_mistake_about_a_domain_quarantines_no_wider_one() -> None:
    tree = build_tree([provider("labels", n1="d1/b1/c1", n2="d1/b2/c1", n3="d2/b1/c1")], SETTINGS)

    assert paths(tree) == {"n3": "d2/b1/c1"}


def test_a_less_trusted_parent_does_not_count_and_is_reported() -> None:
    tree = build_tree([provider("ufm", n1="-/g7/-"), provider("labels", n1="d1/b1/c", n2="d1/b1/c")], SETTINGS)

    assert paths(tree) == {"n1": "d1/g7/c", "n2": "d1/g7/c"}
    of_node, of_domain = tree.contradictions
    assert (of_node.level, of_node.provider) == ("block", "labels")
    assert (of_domain.level, of_domain.provider) == ("nvlink", "labels")
    assert "nvlink d1 does not lie in block b1" in of_domain.message


def test_a_less_trusted_domain_that_more_trusted_ones_put_apart_does_not_count() -> None:
    tree = build_tree(
        [provider("ufm", n1="-/g7/-", n2="-/g8/-"), provider("labels", n1="d1/-/c", n2="d1/-/c")], SETTINGS
    )

    assert paths(tree) == {"n1": "-/g7/c", "n2": "-/g8/c"}
    assert [(entry.level, entry.provider) for entry in tree.contradictions] == [("nvlink", "labels")]


def test_a_less_trusted_member_does_not_count_where_it_contradicts() -> None:
    tree = build_tree(
        [provider("ufm", n1="d1/g7/-", n2="-/g8/-"), provider("labels", n2="d1/-/-", n3="d1/-/-")], SETTINGS
    )

    assert paths(tree) == {"n1": "d1/g7/-", "n2": "-/g8/-", "n3": "d1/g7/-"}


def test_one_name_in_several_clusters_is_several_domains() -> None:
    tree = build_tree([provider("labels", n1="A/b1/c1", n2="A/b1/c1", n3="A/b1/c2", n4="B/b2/c2")], SETTINGS)

    assert not tree.quarantined
    assert paths(tree) == {"n1": "A/b1/c1", "n2": "A/b1/c1", "n3": "A/b1/c2", "n4": "B/b2/c2"}
    assert together(tree, 0, "n1", "n2")
    for level in (0, 1):
        assert not together(tree, level, "n1", "n3")
    # A name that one cluster alone uses remains the identity, so that no HyperNode or label is called otherwise.
    assert {(domain.name, domain.identity) for domain in tree.domains[0]} == {
        ("A", "c1/A"),
        ("A", "c2/A"),
        ("B", "B"),
    }


def test_one_name_of_clusters_in_several_regions_is_several_clusters() -> None:
    tree = build_tree([provider("labels", n1="A/b/c/eu", n2="A/b/c/us", n3="A/b/c/us")], DEFAULTS)

    assert not tree.quarantined
    assert [together(tree, level, "n2", "n3") for level in range(4)] == [True] * 4
    assert not any(together(tree, level, "n1", "n2") for level in range(4))
    assert {domain.identity for domain in tree.domains[0]} == {"eu/c/A", "us/c/A"}


def test_a_uuid_in_several_clusters_contradicts_itself() -> None:
    tree = build_tree([provider("labels", n1=f"{UUID}.1/b1/c1", n2=f"{UUID}.1/b1/c2", n3="A/b1/c2")], SETTINGS)

    assert paths(tree) == {"n3": "A/b1/c2"}
    assert {entry.message for entry in tree.quarantined} == {
        f"domain {UUID}.1 lies in clusters c1 (n1), c2 (n2): it can be in one only"
    }


def test_a_contradiction_in_one_cluster_does_not_reach_another() -> None:
    tree = build_tree([provider("labels", n1="A/b1/c1", n2="A/b2/c1", n3="A/b1/c2")], SETTINGS)

    assert paths(tree) == {"n3": "A/b1/c2"}


def test_names_of_several_clusters_in_parents_of_several_clusters_are_told_apart() -> None:
    scoped = Topology(
        levels=[TopologyLevel("nvlink", unique="parent"), TopologyLevel("block"), TopologyLevel("cluster")]
    )
    tree = build_tree([provider("labels", n1="A/b/c1", n2="A/b/c1", n3="A/b/c2", n4="B/b/c2")], scoped)

    assert {domain.identity for domain in tree.domains[0]} == {"c1/b/A", "c2/b/A", "c2/b/B"}


def test_a_domain_of_cables_is_not_divided_by_less_trusted_labels_of_clusters() -> None:
    cables = provider("ufm", n1="leaf/-/-", n2="leaf/-/-")
    tree = build_tree([cables, provider("labels", n1="-/-/c1", n2="-/-/c2")], SETTINGS)

    assert together(tree, 0, "n1", "n2")
    assert [entry.provider for entry in tree.contradictions] == ["labels", "labels"]


def test_another_provider_adds_nodes_to_the_domain_of_their_cluster() -> None:
    labels = provider("labels", n1="A/b1/c1", n2="A/b1/c2", n3="-/-/c2")
    tree = build_tree([labels, provider("tree-file", n3="A/-/-")], SETTINGS)

    assert together(tree, 0, "n2", "n3")
    assert not together(tree, 0, "n1", "n3")


def test_names_that_are_unique_in_their_parent_are_several_domains() -> None:
    tree = build_tree([provider("labels", n1="-/r1/b1", n2="-/r1/b2", n3="-/r1/b1")], SCOPED)

    assert paths(tree) == dict.fromkeys(("n1", "n3"), "-/r1/b1") | {"n2": "-/r1/b2"}
    assert len({domain.identity for domain in tree.domains[1]}) == 2


def test_a_name_within_an_unknown_parent_is_unknown() -> None:
    assert paths(build_tree([provider("labels", n1="-/r1/-", n2="-/r1/-")], SCOPED)) == dict.fromkeys(
        ("n1", "n2"), "-/-/-"
    )


def test_a_name_is_completed_by_the_parent_of_the_nodes_domain() -> None:
    tree = build_tree([provider("labels", n1="d1/r1/b1", n2="d1/r1/-", n3="d3/r1/b2")], SCOPED)

    assert paths(tree) == {"n1": "d1/r1/b1", "n2": "d1/r1/b1", "n3": "d3/r1/b2"}


def test_identities_do_not_mix_up_names_with_separators() -> None:
    places = {"n1": ("", "c", "a/b"), "n2": ("", "b/c", "a"), "n3": ("", "", ":n4"), "n4": ("", "", "")}
    tree = build_tree([("tree-file", Placements(places))], SCOPED)

    assert not tree.quarantined
    assert not together(tree, 1, "n1", "n2")
    assert not together(tree, 2, "n3", "n4")


def test_nodes_without_the_closest_domain_are_quarantined_if_configured() -> None:
    quarantining = Topology(levels=SETTINGS.levels, missing_fabric="quarantine")
    tree = build_tree([provider("labels", n1="-/b1/c", n2="d2/b1/c")], quarantining, unplaced=["n3"])

    assert reasons(tree.quarantined) == dict.fromkeys(("n1", "n3"), QuarantineReason.NO_FABRIC_DOMAIN)


def test_claims_about_nodes_that_do_not_exist_do_not_count() -> None:
    tree = build_tree([provider("labels", n1="d1/b1/c", n2="d1/b2/c")], SETTINGS, existing={"n1"})

    assert paths(tree) == {"n1": "d1/b1/c"}


@pytest.mark.parametrize(("place", "expected"), [("d1/b1/c", {"n1"}), ("d1/b1/-", set())])
def test_a_fault_of_a_provider_matters_unless_all_levels_are_known_without_it(place: str, expected: set[str]) -> None:
    fault = Quarantined("n1", QuarantineReason.LABEL_INVALID, "")
    tree = build_tree([provider("ufm", n1=place), ("labels", Placements({}, (fault,)))], SETTINGS)

    assert set(tree.nodes) == expected
    assert set(reasons(tree.quarantined)) == {"n1"} - expected


CABLES_FIRST, LABELS_FIRST = ["cables", "labels"], ["labels", "cables"]


def merged(order: list[str], cables: dict[str, str], settings: Topology = SETTINGS) -> Tree:
    """Return the tree of nodes that NVML puts in one clique, with their places by cables."""
    measured = provider("labels", **dict.fromkeys(cables, f"{CLIQUE}/-/c"))
    named = {"labels": measured, "cables": provider("cables", **cables)}
    return build_tree([named[name] for name in order], settings)


@pytest.mark.parametrize("order", [CABLES_FIRST, LABELS_FIRST])
def test_one_node_at_another_leaf_leaves_the_nvlink_domain_of_the_others(order: list[str]) -> None:
    tree = merged(order, {**{f"n{at:02}": "-/leaf-a/-" for at in range(17)}, "odd": "-/leaf-b/-"})

    assert set(paths(tree).values()) == {f"{CLIQUE}/leaf-a/c"}
    assert len(tree.nodes) == 17
    (aside,) = tree.quarantined
    assert (aside.node, aside.why) == ("odd", QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)
    assert "leaf-a (17 nodes), leaf-b (odd)" in aside.message


@pytest.mark.parametrize("order", [CABLES_FIRST, LABELS_FIRST])
def test_cables_that_divide_an_nvlink_domain_evenly_do_not_count(order: list[str]) -> None:
    """A rack whose trays are cabled to several leaf groups in equal parts is in none, and stays one NVLink domain."""
    tree = merged(order, {f"n{at}": f"-/leaf-{'ab'[at % 2]}/-" for at in range(6)})

    assert set(paths(tree).values()) == {f"{CLIQUE}/-/c"}
    assert len(tree.domains[1]) == 1
    assert not tree.quarantined
    assert [(entry.provider, entry.message) for entry in tree.contradictions] == [
        ("cables", f"nvlink {CLIQUE} does not lie in block leaf-{leaf}: NVML measured it, and cables divides its nodes")
        for leaf in "ab"
    ]


@pytest.mark.parametrize(("odd", "aside"), [("leaf-a", set[str]()), ("leaf-b", {"odd"})])
def test_a_block_that_was_written_does_not_let_cables_dissolve_an_nvlink_domain(odd: str, aside: set[str]) -> None:
    cables = provider("cables", n1="-/leaf-a/-", n2="-/leaf-a/-", odd=f"-/{odd}/-")
    labels = provider("labels", n3=f"{CLIQUE}/written/c", **dict.fromkeys(("n1", "n2", "odd"), f"{CLIQUE}/-/c"))
    tree = build_tree([cables, labels], SETTINGS)

    assert paths(tree) == dict.fromkeys({"n1", "n2", "n3", "odd"} - aside, f"{CLIQUE}/leaf-a/c")
    assert set(reasons(tree.quarantined)) == aside
    assert [entry.message.partition(":")[0] for entry in tree.contradictions] == [
        f"nvlink {CLIQUE} does not lie in block written"
    ]


def test_nodes_that_no_cable_shows_stay_with_the_most() -> None:
    tree = merged(CABLES_FIRST, {"n1": "-/leaf-a/-", "n2": "-/-/-", "n3": "-/leaf-a/-", "odd": "-/leaf-b/-"})

    assert paths(tree) == dict.fromkeys(("n1", "n2", "n3"), f"{CLIQUE}/leaf-a/c")


def test_a_contradiction_at_a_wider_level_sets_aside_the_same_node() -> None:
    levels = Topology(levels=[TopologyLevel(name) for name in ("nvlink", "leaf", "spine")])
    cables = {f"n{at}": "-/leaf-a/spine-a" for at in range(4)} | {"odd": "-/leaf-b/spine-b", "also": "-/leaf-c/spine-a"}
    measured = provider("labels", **dict.fromkeys(cables, f"{CLIQUE}/-/-"))
    tree = build_tree([provider("cables", **cables), measured], levels)

    assert set(paths(tree).values()) == {f"{CLIQUE}/leaf-a/spine-a"}
    assert {entry.node for entry in tree.quarantined} == {"also", "odd"}


def test_a_domain_that_people_name_is_weighed_by_trust_alone() -> None:
    places = {f"n{at}": "-/leaf-a/-" for at in range(3)} | {"odd": "-/leaf-b/-"}
    named = provider("labels", **dict.fromkeys(places, "rack-1/-/c"))
    tree = build_tree([provider("cables", **places), named], SETTINGS)

    assert {path.partition("/")[0] for path in paths(tree).values()} == {"-"}
    assert not tree.quarantined


def test_a_change_of_numbers_decides_anew() -> None:
    """The rows stay the same, and the majority changes."""

    def told(first: int) -> list[tuple[str, Placements]]:
        leaves = {f"n{at}": f"-/leaf-{'a' if at < first else 'b'}/-" for at in range(5)}
        return [provider("cables", **leaves), provider("labels", **dict.fromkeys(leaves, f"{CLIQUE}/-/c"))]

    before = Merge(SETTINGS, Rows(SETTINGS)).changed(told(3), (), lambda _: False)
    after = before.changed(told(2), (), lambda _: False)
    assert {entry.node for entry in before.tree.quarantined} == {"n3", "n4"}
    assert {entry.node for entry in after.tree.quarantined} == {"n0", "n1"}
    assert after.tree == build_tree(told(2), SETTINGS)
