"""The planner's survey and the tree of the schedulers agree, whatever the sources say."""

from collections.abc import Mapping, Sequence

from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.placements import Placements
from gkm.topology.survey import survey_nodes
from gkm.topology.trees.merge import Named, build_tree
from gkm.topology.trees.tree import Tree
from hypothesis import given
from hypothesis import strategies as st
from support.topology.kube_lists import node

CLIQUE = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
CABLED = Topology(levels=[TopologyLevel(name) for name in ("nvlink", "leaf", "spine", "cluster", "region")])


def cables(**places: tuple[str, str]) -> tuple[str, Placements]:
    """Return what cables say: the leaf and the spine of each node."""
    return "infiniband", Placements({name: ("", leaf, spine, "", "") for name, (leaf, spine) in places.items()})


def by_labels(nodes: Sequence[Node], settings: Topology) -> tuple[str, Placements]:
    return "labels", label_placements(nodes, settings)


def blocks(nodes: Sequence[Node], settings: Topology, sources: Named) -> Mapping[str, str]:
    found = survey_nodes(nodes, settings, sources=sources)
    return {each.node.name: each.location.block for each in found.located}


def test_a_run_is_planned_with_the_blocks_that_cables_lead_to() -> None:
    nodes = [node("n1", {"block": "written"}), node("n2", {"block": "written"})]
    sources = [cables(n1=("l1", "s1"), n2=("l2", "s2")), by_labels(nodes, CABLED)]

    assert blocks(nodes, CABLED, sources) == {"n1": "s1", "n2": "s2"}


def test_labels_give_the_domain_where_cables_give_the_block() -> None:
    nodes = [node(name, {"nvidia.com/gpu.clique": CLIQUE}) for name in ("n1", "n2")]
    found = survey_nodes(nodes, CABLED, sources=[cables(n1=("l1", "s1")), by_labels(nodes, CABLED)])

    assert {str(each.location) for each in found.located} == {f"default/default/s1/{CLIQUE}"}


def test_a_node_that_cables_put_elsewhere_than_its_clique_gets_no_run() -> None:
    nodes = [node(f"n{at}", {"nvidia.com/gpu.clique": CLIQUE}) for at in range(3)]
    sources = [cables(n0=("l1", "s1"), n1=("l1", "s1"), n2=("l2", "s2")), by_labels(nodes, CABLED)]
    found = survey_nodes(nodes, CABLED, sources=sources)

    assert [each.node.name for each in found.located] == ["n0", "n1"]
    assert [entry.node for entry in found.quarantined] == ["n2"]
    assert found.quarantined == build_tree(sources, CABLED).quarantined


WORDS = st.sampled_from(["", "x", "y", "z"])
LABELS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("region", "cluster", "block", "rack", "leaf"), WORDS)
    | {"fabric.domain": st.one_of(WORDS, st.just(CLIQUE))},
)
LEVELS = st.sampled_from(
    [
        ("nvlink", "block", "cluster", "region"),
        ("nvlink", "rack", "block", "cluster", "region"),
        ("nvlink", "spine", "cluster", "region"),
        ("block", "cluster"),
    ]
)


@given(st.data(), LEVELS, st.lists(LABELS, max_size=8))
def test_the_planner_and_the_schedulers_see_one_topology(
    data: st.DataObject, levels: tuple[str, ...], labels: list[dict[str, str]]
) -> None:
    settings = Topology(levels=[TopologyLevel(name) for name in levels])
    nodes = [node(f"n{at}", found) for at, found in enumerate(labels)]
    places = st.tuples(*(WORDS for _ in levels))
    told = {each.name: data.draw(places) for each in nodes if data.draw(st.booleans())}
    sources = [("ufm", Placements(told)), by_labels(nodes, settings)]

    tree = build_tree(sources, settings, existing={each.name for each in nodes}, unplaced=[each.name for each in nodes])
    found = survey_nodes(nodes, settings, sources=sources)

    assert {entry.node for entry in tree.quarantined} <= {entry.node for entry in found.quarantined}
    if levels[:1] + levels[-2:] == ("nvlink", "cluster", "region"):
        assert found.quarantined == tree.quarantined
    for level, of in (("nvlink", "domain"), ("block", "block"), ("spine", "block")):
        if level in levels:
            named = _named(tree, level)
            shown = {each.node.name: (each.location[:2], getattr(each.location, of)) for each in found.located}
            together = _pairs({name: where for name, where in shown.items() if name in named})
            by_tree = _pairs({name: domain for name, domain in named.items() if name in shown})
            # Where the tree has no regions, labels of regions tell more nodes apart.
            assert together == by_tree if "region" in levels else together <= by_tree


def _named(tree: Tree, level: str) -> Mapping[str, str]:
    """Return the identity of the domain of each node that has one at a level."""
    return {
        name: domain.identity
        for domain in tree.domains[tree.levels.index(level)]
        if not domain.own
        for name in tree.nodes[domain.first : domain.end]
    }


def _pairs(domains: Mapping[str, object]) -> set[tuple[str, str]]:
    """Return the pairs of nodes that share a domain."""
    return {(one, other) for one in domains for other in domains if domains[one] == domains[other]}
