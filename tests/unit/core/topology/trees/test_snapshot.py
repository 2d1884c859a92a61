"""Snapshots of all nodes: the tree and its version, changed node by node."""

from collections.abc import Iterable, Mapping
from random import Random

import pytest
from gkm.api.topology_settings import Topology, TopologyLevel, TopologyProvider
from gkm.topology.labels import label_placements
from gkm.topology.nodes import Node
from gkm.topology.placements import Placements
from gkm.topology.quarantine import QuarantineReason
from gkm.topology.trees.merge import Snapshot, build_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.topology.kube_lists import node

SETTINGS = Topology()


def labels(domain: str = "d1", block: str = "b1", **more: str) -> dict[str, str]:
    return {"fabric.domain": domain, "block": block, "gpu.flavor": "H100", "region": "eu", "cluster": "a"} | more


def snapshot(
    nodes: Iterable[Node],
    configured: Topology = SETTINGS,
    external: Mapping[str, Placements] | None = None,
    before: Snapshot | None = None,
) -> Snapshot:
    """The snapshot of nodes by their labels and the placements of other providers."""
    listed = list(nodes)
    placed = {"labels": label_placements(listed, configured), **(external or {})}
    by_provider = [(provider.name, placed[provider.name]) for provider in configured.providers]
    start = before or Snapshot.start(configured)
    return start.changed({each.name: each for each in listed}, by_provider)


def domain(found: Snapshot, level: str, name: str) -> tuple[str, ...]:
    """The nodes of a domain in their order."""
    domains = found.tree.domains[found.tree.levels.index(level)]
    (one,) = [each for each in domains if each.name == name]
    return found.tree.nodes[one.first : one.end]


def test_a_domain_has_its_nodes_in_their_order() -> None:
    found = snapshot([node("n2", labels()), node("n1", labels()), node("n3", labels("d2"))])

    assert domain(found, "nvlink", "d1") == ("n1", "n2")
    assert domain(found, "block", "b1") == ("n1", "n2", "n3")


def test_quarantined_nodes_are_in_no_domain() -> None:
    found = snapshot([node("n1", labels()), node("n2", labels(block="b2")), node("n3", labels("d3"))])

    reasons = {entry.node: entry.why for entry in found.tree.quarantined}
    assert reasons == dict.fromkeys(("n1", "n2"), QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS)
    assert found.tree.nodes == ("n3",)


def test_a_corrected_label_brings_the_whole_domain_back() -> None:
    before = snapshot([node("n1", labels()), node("n2", labels(block="b2"))])

    after = snapshot([node("n1", labels()), node("n2", labels())], before=before)

    assert domain(after, "nvlink", "d1") == ("n1", "n2")
    assert not after.tree.quarantined


@pytest.mark.parametrize(
    "changed",
    [
        node("n1", labels()),
        node("n1", labels(), unschedulable=True),
        node("n1", labels(), gpus="4"),
        node("n1", labels(**{"gpu.flavor": "h20"})),
    ],
)
def test_what_moves_no_node_makes_no_tree(changed: Node) -> None:
    nodes = [node("n1", labels()), node("n2", labels("d2"))]
    before = snapshot(nodes)

    assert snapshot([changed, nodes[1]], before=before).tree is before.tree


@pytest.mark.parametrize(
    "changed",
    [
        [node("n1", labels("d2"))],
        [node("n1", labels(block="b2"))],
        [node("n1", {"block": "a b"})],
        [node("n1", {"block": "a b"}), node("n2", {"block": "a b"})],
        [node("n1", labels()), node("n2", labels())],
        [node("n1", {})],
        [node("n2", labels())],
        [],
    ],
)
def test_each_change_of_the_tree_changes_the_version(changed: list[Node]) -> None:
    before = snapshot([node("n1", labels())])

    after = snapshot(changed, before=before)

    assert len({before.tree.version(), after.tree.version()}) == 2
    assert snapshot([node("n1", labels())], before=after).tree.version() == before.tree.version()


def test_a_change_that_is_overruled_makes_no_tree() -> None:
    configured = Topology(providers=[TopologyProvider("labels"), TopologyProvider("other")])
    nodes = [node("n1", labels()), node("n2", labels())]

    def other(name: str) -> Placements:
        return Placements({each.name: (name, "", "", "") for each in nodes})

    before = snapshot(nodes, configured=configured, external={"other": other("x")})
    by_provider = [("labels", before.merge.by_provider[0][1]), ("other", other("y"))]
    after = before.changed({each.name: each for each in nodes}, by_provider)
    assert after.tree is before.tree


def test_rows_that_no_node_has_any_more_are_forgotten() -> None:
    found = snapshot([node("n", labels())])
    for number in range(5_000):
        found = snapshot([node("n", labels(f"d{number}"))], before=found)
    assert len(found.merge.reader._paths) < 2_000


def test_placements_of_other_providers_count_by_trust() -> None:
    configured = Topology(providers=[TopologyProvider("ufm"), TopologyProvider("labels")])
    external = {"ufm": Placements({"n1": ("", "leaf", "", "")})}

    found = snapshot([node("n1", labels()), node("n2", labels())], configured, external)

    assert domain(found, "block", "leaf") == ("n1", "n2")


WORDS = st.sampled_from(["", "x", "y"])
# Domains often have several nodes with different claims.
LABELS = st.fixed_dictionaries(
    {"fabric.domain": st.sampled_from(["x", "x", "y", ""]), "block": st.sampled_from(["x", "y", "y", "", "a b"])},
    optional={"rack": WORDS, "cluster": WORDS},
)
NAMES = ["n1", "n2", "n3", "n4", "n5", "n6"]
NODES = st.builds(node, st.sampled_from(NAMES), LABELS, st.sampled_from([None, "8", "8", "NaN"]))
CHANGES = st.lists(st.tuples(NODES, st.sampled_from([False, False, True])), max_size=6)
LEVELS = st.tuples(st.sampled_from(["cluster", "parent"]), st.sampled_from(["cluster", "parent"])).map(
    lambda unique: [
        TopologyLevel("nvlink"),
        TopologyLevel("rack", unique=unique[0]),  # type: ignore[arg-type]
        TopologyLevel("block", unique=unique[1]),  # type: ignore[arg-type]
        TopologyLevel("cluster"),
    ]
)
EXTERNAL = st.dictionaries(st.sampled_from(NAMES), st.tuples(WORDS, WORDS, WORDS, WORDS), max_size=2)


STEPS = st.lists(st.tuples(CHANGES, EXTERNAL), min_size=1, max_size=5)


@settings(max_examples=examples(400))
@given(STEPS, LEVELS, st.randoms(), st.booleans())
def test_changes_make_what_a_whole_build_makes(
    steps: list[tuple[list[tuple[Node, bool]], Mapping[str, tuple[str, ...]]]],
    levels: list[TopologyLevel],
    order: Random,
    ordered: bool,  # noqa: FBT001 -- drawn
) -> None:
    configured = Topology(levels=levels, providers=[TopologyProvider("ufm"), TopologyProvider("labels")])
    found: Snapshot | None = None
    state: dict[str, Node] = {}
    for changes, places in steps:
        for changed, removed in changes:
            state.pop(changed.name, None)
            if not removed:
                state[changed.name] = changed
        nodes = sorted(state.values(), key=lambda each: each.name)
        if not ordered:
            order.shuffle(nodes)
        external = {"ufm": Placements(places)}
        found = snapshot(nodes, configured, external, found)
        anew = snapshot(nodes[::-1], configured, external)
        assert found.tree == anew.tree
        assert found.tree.version() == anew.tree.version()
        by_provider = [("ufm", external["ufm"]), ("labels", label_placements(nodes, configured))]
        unplaced = [each.name for each in nodes if each.gpus is not None]
        assert found.tree == build_tree(by_provider, configured, existing=[*state], unplaced=unplaced)
