"""Properties of every merge of several providers into one tree."""

from collections.abc import Mapping, Sequence
from random import Random

from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.merge import Named, build_tree, differing
from gkm.topology.placements import Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.tree import Tree
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.tree_queries import reasons, together

NODES = ["n1", "n2", "n3", "n4", "n5"]
PLACES = st.dictionaries(
    st.sampled_from(NODES), st.tuples(*[st.sampled_from(["", "x", "y", "z"]) for _ in range(4)]), max_size=5
)
FAULTS = st.lists(st.sampled_from(NODES), max_size=1)
PLACEMENTS = st.builds(
    lambda places, faulty: Placements(
        {name: place for name, place in places.items() if name not in faulty},
        tuple(Quarantined(name, QuarantineReason.LABEL_INVALID, "") for name in faulty),
    ),
    PLACES,
    FAULTS,
)
PROVIDERS = st.lists(PLACEMENTS, max_size=3).map(lambda found: [(f"p{rank}", each) for rank, each in enumerate(found)])
ANY_SETTINGS = st.builds(
    lambda names, unique: Topology(
        levels=[TopologyLevel(name, unique=each) for name, each in zip(names, unique, strict=True)]
    ),
    st.sampled_from([("nvlink", "rack", "leaf", "block"), ("nvlink", "block", "cluster", "region")]),
    st.tuples(*[st.sampled_from(["cluster", "parent"]) for _ in range(4)]),
)


def assert_is_tree(tree: Tree) -> None:
    """Each level divides the nodes into intervals, and each domain lies in its parent."""
    for level, domains in enumerate(tree.domains):
        assert [domain.first for domain in domains] == [0, *(domain.end for domain in domains)][: len(domains)]
        assert (domains[-1].end if domains else 0) == len(tree.nodes)
        assert len({domain.identity for domain in domains}) == len(domains)
        for domain in domains:
            assert domain.first < domain.end
            assert domain.level == level
            if level + 1 == len(tree.levels):
                assert domain.parent == -1
            else:
                parent = tree.domains[level + 1][domain.parent]
                assert parent.first <= domain.first < domain.end <= parent.end


@settings(max_examples=examples(500))
@given(PROVIDERS, ANY_SETTINGS)
def test_every_node_is_once_in_a_tree_or_quarantined(providers: Named, configured: Topology) -> None:
    tree = build_tree(providers, configured, unplaced=["n0"])

    assert_is_tree(tree)
    everywhere = [*tree.nodes, *(entry.node for entry in tree.quarantined)]
    names = {"n0"}.union(*(placed.places for _, placed in providers))
    names.update(entry.node for _, placed in providers for entry in placed.quarantined)
    assert sorted(everywhere) == sorted(names)


@settings(max_examples=examples(300))
@given(PROVIDERS, ANY_SETTINGS)
def test_what_the_most_trusted_provider_puts_apart_is_never_together(providers: Named, configured: Topology) -> None:
    tree = build_tree(providers, configured)
    trusted: Mapping[str, Sequence[str]] = providers[0][1].places if providers else {}

    for level, domains in enumerate(tree.domains):
        for domain in domains:
            inside = [trusted[name][level] for name in tree.nodes[domain.first : domain.end] if name in trusted]
            assert len({name for name in inside if name}) <= 1


@settings(max_examples=examples(300))
@given(PROVIDERS, ANY_SETTINGS, st.integers())
def test_the_order_of_nodes_does_not_matter(providers: Named, configured: Topology, seed: int) -> None:
    def shuffled(placed: Placements) -> Placements:
        items = sorted(placed.places.items())
        return Placements(dict(Random(seed).sample(items, len(items))), placed.quarantined)

    other = [(name, shuffled(placed)) for name, placed in providers]

    assert build_tree(other, configured) == build_tree(providers, configured)


@settings(max_examples=examples(500))
@given(st.dictionaries(st.sampled_from([*NODES, "n6", "n7"]), st.tuples(*[st.sampled_from(["x", "y"])] * 4)))
def test_the_key_of_a_domain_is_its_region_cluster_and_name(places: Mapping[str, tuple[str, ...]]) -> None:
    tree = build_tree([("labels", Placements(places))], Topology())

    # Only what contradicts itself within one cluster is quarantined: a domain in several blocks.
    blocks: dict[tuple[str, ...], set[str]] = {}
    for domain, block, cluster, region in places.values():
        blocks.setdefault((region, cluster, domain), set()).add(block)
    wrong = {name for name, (domain, _, *area) in places.items() if len(blocks[area[1], area[0], domain]) > 1}
    assert set(reasons(tree.quarantined)) == wrong
    for level in range(4):
        keys = {name: (places[name][level], *places[name][max(level + 1, 2) :]) for name in tree.nodes}
        for one in tree.nodes:
            for other in tree.nodes:
                assert together(tree, level, one, other) == (keys[one] == keys[other])


@settings(max_examples=examples(300))
@given(PLACES, ANY_SETTINGS)
def test_one_provider_alone_is_never_overruled(places: Mapping[str, tuple[str, ...]], configured: Topology) -> None:
    tree = build_tree([("p0", Placements(places))], configured)

    assert not tree.contradictions


@given(
    st.integers(0, 600),
    st.dictionaries(st.integers(0, 600), st.sampled_from(["a", "b", "c", None]), max_size=3),
    st.sets(st.integers(0, 600), max_size=1),
    st.randoms(),
)
def test_keys_differ_whose_values_do_or_that_one_side_lacks(
    size: int, changes: dict[int, str | None], removed: set[int], order: Random
) -> None:
    before: dict[str, str | None] = {str(key): "ab"[key % 2] for key in range(size)}
    after = {key: value for key, value in before.items() if int(key) not in removed}
    after |= {str(key): value for key, value in changes.items()}
    expected = {key for key in before.keys() | after.keys() if before.get(key, "") != after.get(key, "")}
    assert differing(before, after) == expected
    assert differing(before, dict(order.sample(list(after.items()), len(after)))) == expected
