"""Properties of every merge of several providers into one tree."""

from collections.abc import Mapping, Sequence
from random import Random

from gkm.api.topology_settings import Topology, TopologyLevel
from gkm.topology.placements import Placements
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.trees.merge import Named, build_tree, differing
from gkm.topology.trees.tree import Tree
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.tree_queries import places, reasons, together

NODES = ["n1", "n2", "n3", "n4", "n5"]
PLACES = st.dictionaries(
    st.sampled_from(NODES), st.tuples(*[st.sampled_from(["", "x", "y", "z"]) for _ in range(4)]), max_size=5
)
FAULTS = st.lists(st.sampled_from(NODES), max_size=1)
PLACEMENTS = st.builds(
    lambda told, faulty: Placements(
        {name: place for name, place in told.items() if name not in faulty},
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
def test_the_key_of_a_domain_is_its_region_cluster_and_name(told: Mapping[str, tuple[str, ...]]) -> None:
    tree = build_tree([("labels", Placements(told))], Topology())

    # Only what contradicts itself within one cluster is quarantined: a domain in several blocks.
    blocks: dict[tuple[str, ...], set[str]] = {}
    for domain, block, cluster, region in told.values():
        blocks.setdefault((region, cluster, domain), set()).add(block)
    wrong = {name for name, (domain, _, *area) in told.items() if len(blocks[area[1], area[0], domain]) > 1}
    assert set(reasons(tree.quarantined)) == wrong
    for level in range(4):
        keys = {name: (told[name][level], *told[name][max(level + 1, 2) :]) for name in tree.nodes}
        for one in tree.nodes:
            for other in tree.nodes:
                assert together(tree, level, one, other) == (keys[one] == keys[other])


@settings(max_examples=examples(300))
@given(PLACES, ANY_SETTINGS)
def test_one_provider_alone_is_never_overruled(told: Mapping[str, tuple[str, ...]], configured: Topology) -> None:
    tree = build_tree([("p0", Placements(told))], configured)

    assert not tree.contradictions


NAMED_ONCE = ANY_SETTINGS.filter(lambda configured: all(level.unique == "cluster" for level in configured.levels))


@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(NODES), st.lists(st.sampled_from("ab"), min_size=4, max_size=4)), NAMED_ONCE)
def test_one_source_alone_gives_its_own_tree(digits: Mapping[str, list[str]], configured: Topology) -> None:
    # A name with those of all wider levels nests; where the first letter is b, the source names no domain.
    told = {
        name: tuple("" if where[at] == "b" and at < 2 else "".join(where[at:]) for at in range(4))
        for name, where in digits.items()
    }
    tree = build_tree([("silent", Placements()), ("p0", Placements(told)), ("p1", Placements())], configured)

    assert places(tree) == told
    assert not tree.quarantined
    assert not tree.contradictions


@settings(max_examples=examples(500))
@given(PROVIDERS, NAMED_ONCE)
def test_a_source_that_does_not_count_about_a_node_is_always_reported(providers: Named, configured: Topology) -> None:
    tree = build_tree(providers, configured)
    reported = {(entry.provider, entry.level) for entry in tree.contradictions}
    levels = [level.name for level in configured.levels]

    for node, found in places(tree).items():
        for source, placed in providers:
            for at, name in enumerate(placed.places.get(node, ())):
                # Of a domain that lies elsewhere than a source says the closer level is named.
                assert name in ("", found[at]) or {(source, level) for level in levels[: at + 1]} & reported


@settings(max_examples=examples(500))
@given(PROVIDERS, NAMED_ONCE)
def test_what_no_source_says_is_in_no_tree(providers: Named, configured: Topology) -> None:
    tree = build_tree(providers, configured)

    told = {name: {at: set[str]() for at in range(4)} for name in tree.nodes}
    for _, placed in providers:
        for node, place in placed.places.items():
            for at, name in enumerate(place if node in told else ()):
                told[node][at] |= {name} - {""}
    for node, found in places(tree).items():
        for at, name in enumerate(found):
            # Or a node that shares a closer domain says so.
            mates = [other for other in tree.nodes if any(together(tree, level, node, other) for level in range(at))]
            assert not name or any(name in told[other][at] for other in [node, *mates])


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(NODES), st.tuples(*[st.sampled_from(["", "", "v", "w", "x", "y", "z"]) for _ in range(4)])
        ).map(Placements),
        min_size=1,
        max_size=3,
    ),
    ANY_SETTINGS,
    st.integers(0, 2),
)
def test_without_a_source_only_nodes_that_it_placed_and_those_beside_them_change(
    placed: list[Placements], configured: Topology, gone: int
) -> None:
    gone %= len(placed)
    providers = [(f"p{rank}", each) for rank, each in enumerate(placed)]
    rest = [(name, each if rank != gone else Placements()) for rank, (name, each) in enumerate(providers)]
    before, after = build_tree(providers, configured, unplaced=NODES), build_tree(rest, configured, unplaced=NODES)

    touched = _beside(providers, set(placed[gone].places))
    for node in set(NODES) - touched:
        assert places(before).get(node) == places(after).get(node)
        assert reasons(before.quarantined).get(node) == reasons(after.quarantined).get(node)


def _beside(providers: Named, nodes: set[str]) -> set[str]:
    """Return nodes, and those that share a name of a level with one of these, by any source, and so on."""
    names: dict[str, set[tuple[int, str]]] = {}
    for _, placed in providers:
        for node, place in placed.places.items():
            names.setdefault(node, set()).update((at, name) for at, name in enumerate(place) if name)
    touched = set(nodes)
    while more := {
        node
        for node, own in names.items()
        if node not in touched and any(own & names[other] for other in touched if other in names)
    }:
        touched |= more
    return touched


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
