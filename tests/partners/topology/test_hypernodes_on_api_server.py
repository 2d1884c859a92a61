"""HyperNodes on a real API server with Volcano's definitions and admission policies."""

import itertools
import json
import random
from collections.abc import Iterator

import pytest
from gkm.api.topology_settings import Topology
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees.volcano import manifest
from gkm.topology.trees.write_order import Write, ordered_writes
from support.cluster.cluster import Cluster, KubectlFailed
from support.topology.object_writer import HyperNodeWriter
from support.topology.rendered import SETTINGS, Places, hypernodes, settings
from support.topology.volcano_rules import violations

LEVELS = [f"level-{number}" for number in range(1, 15)]
LONGEST_NODE = ".".join(["a" * 31, "b" * 31])
BIG_CLUSTER = {f"{number:05}": ("", "everything") for number in range(15_000)}


@pytest.fixture
def writer(schedulers: Cluster) -> Iterator[HyperNodeWriter]:
    """A writer that begins without HyperNodes."""
    made = HyperNodeWriter(schedulers)
    made.clear()
    yield made
    made.clear()


FORMS: dict[str, tuple[Places, Topology, set[str]]] = {
    "racks in a block": (
        {"n1": ("r1", "b1"), "n2": ("r2", "b1")},
        SETTINGS,
        {"rack-r1", "rack-r2", "block-b1"},
    ),
    "a node without a rack beside a rack": (
        {"n1": ("r1", "b1"), "n2": ("", "b1")},
        SETTINGS,
        {"rack-r1", "block-b1"},
    ),
    "a level without domains": (
        {"n1": ("r1", "", "c1"), "n2": ("r1", "", "c1")},
        settings("rack", "block", "cluster"),
        {"rack-r1", "cluster-c1"},
    ),
    "fourteen levels": (
        {"n1": tuple(f"d{number}" for number in range(14))},
        settings(*LEVELS),
        set(),
    ),
    "names that no object can have": (
        {"n1": ("S-7Fe_Leaf/é 01", "b" * 300), "n2": ("-", "b" * 300)},
        SETTINGS,
        set(),
    ),
    "one name in two blocks": (
        {"n1": ("r1", "b1"), "n2": ("r1", "b2")},
        settings("rack", "block", unique_in_parent=["rack"]),
        set(),
    ),
    "hashed names": ({"n1": ("r1", "b1")}, settings("rack", "block", hashed=True), set()),
    "the longest name of a node": ({LONGEST_NODE: ("r1", "b1")}, SETTINGS, {"rack-r1", "block-b1"}),
    "the largest object": (BIG_CLUSTER, SETTINGS, {"block-everything"}),
}
"""Places and settings, and the names of the HyperNodes where a person can say them."""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_accepted_and_stored_as_it_is(writer: HyperNodeWriter, form: str) -> None:
    places, chosen, names = FORMS[form]
    wanted = hypernodes(places, chosen)
    assert wanted
    assert names in (set(), wanted.keys())
    for hypernode in wanted.values():
        writer.write(Write("create", hypernode))
    assert writer.existing() == wanted


def exact(kind: str, name: str) -> dict[str, object]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def pattern(text: str) -> dict[str, object]:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": text}}}


POLICY = "hypernode-validation-policy"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"tier": 1, "members": []}, "should have at least 1 items"),
        ({"tier": 1}, POLICY),
        ({"tier": -1, "members": [exact("Node", "n1")]}, "greater than or equal to 0"),
        ({"members": [exact("Node", "n1")]}, "spec.tier: Required value"),
        ({"tier": 1, "members": [exact("Node", "Node_1")]}, "spec.members.0..selector.exactMatch.name"),
        ({"tier": 1, "members": [exact("Pod", "n1")]}, "Unsupported value"),
        ({"tier": 1, "members": [pattern("leaf-(")]}, POLICY),
        # The name of a Node may have 253 characters; its label kubernetes.io/hostname has no more than 63 either.
        ({"tier": 1, "members": [exact("Node", "n" * 64)]}, POLICY),
    ],
)
def test_a_bad_hypernode_is_refused(schedulers: Cluster, spec: dict[str, object], message: str) -> None:
    bad = manifest(HyperNode("bad", "", ())) | {"spec": spec}
    with pytest.raises(KubectlFailed, match=message):
        schedulers.kubectl("create", "--filename", "-", input=json.dumps(bad))


def pair(name: str, tier: int, *members: str) -> HyperNode:
    kinds = {True: "HyperNode", False: "Node"}
    return HyperNode(name, "", tuple(Member(kinds[member.startswith("h")], member) for member in members), tier)  # type: ignore[arg-type]


INVALID_TOGETHER = {
    "two parents": (pair("h1", 1, "n1"), pair("h2", 2, "h1"), pair("h3", 2, "h1")),
    "a cycle": (pair("h1", 1, "h2"), pair("h2", 2, "h1")),
    "a tier that does not rise": (pair("h1", 1, "n1"), pair("h2", 1, "h1")),
    "a child that does not exist": (pair("h2", 2, "h1"),),
}


@pytest.mark.parametrize("rule", INVALID_TOGETHER)
def test_the_api_server_accepts_trees_that_stop_the_scheduler(writer: HyperNodeWriter, rule: str) -> None:
    """Why the controllers order their writes, and look at HyperNodes of other sources: nothing else does."""
    for hypernode in INVALID_TOGETHER[rule]:
        writer.write(Write("create", hypernode))
    assert violations(writer.existing())


def random_places(chance: random.Random, nodes: int) -> Places:
    """Return racks in blocks; some nodes have no rack, or no domain at all."""
    block_of = {f"r{number}": f"b{chance.randrange(3)}" for number in range(5)}
    racks = [chance.choice([*block_of, *block_of, ""]) for _ in range(nodes)]
    return {f"n{number}": (rack, block_of.get(rack, "")) for number, rack in enumerate(racks)}


def test_every_write_is_accepted_and_leaves_a_valid_tree(writer: HyperNodeWriter) -> None:
    """From one random tree to the next: nodes change racks, racks change blocks, both come and go."""
    chance = random.Random(17)
    here: dict[str, HyperNode] = {}
    actions = []
    for nodes in (12, 12, 6, 0, 10, 3):
        wanted = hypernodes(random_places(chance, nodes)) if nodes else {}
        for write in ordered_writes(here, wanted):
            writer.write(write)
            actions.append(write.action)
            assert violations(writer.existing()) == []
        here = writer.existing()
        assert here == wanted
    assert set(actions) == {"create", "update", "delete"}


def test_two_nodes_that_swap_their_racks_are_never_in_both(writer: HyperNodeWriter) -> None:
    before = hypernodes({"n1": ("r1", "b1"), "n2": ("r2", "b1"), "n3": ("r1", "b1"), "n4": ("r2", "b1")})
    after = hypernodes({"n1": ("r2", "b1"), "n2": ("r1", "b1"), "n3": ("r1", "b1"), "n4": ("r2", "b1")})
    for write in itertools.chain(ordered_writes({}, before), ordered_writes(before, after)):
        writer.write(write)
        found = writer.existing()
        assert violations(found) == []
        places = [member for hypernode in found.values() for member in hypernode.members]
        assert len(places) == len(set(places))
    assert writer.existing() == after
