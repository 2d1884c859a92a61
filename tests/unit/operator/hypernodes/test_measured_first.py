"""A source that measures outranks one that was written, in whatever order they are configured; both are told."""

import pytest
from gkm.api.topology_status import parse_status
from gkm.kube.resources import PROVIDER_TREES
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.provider_trees import pack
from support.kube.whole_objects import whole
from support.operator.nodes import put
from support.operator.topology import World, racks, settings

RAW_TREES = whole(PROVIDER_TREES)


@pytest.mark.parametrize(("source", "block"), [("ufm", "block-seen"), ("inventory", "block-b0")])
def test_cables_decide_against_labels_that_are_listed_first_and_an_inventory_does_not(source: str, block: str) -> None:
    world = World(racks(1, 2, 2), settings(providers=[{"name": "labels"}, {"name": source}]))
    tree = pack([HyperNode("seen", "block", (Member("Node", "node-0-0-0"), Member("Node", "node-0-0-1")))])
    put(world.api, RAW_TREES, {"metadata": {"name": source}, "spec": {"revision": 1, "tree": tree}})
    process = world.process()
    process.settle()
    assert world.place("node-0-0-0") == {"rack": "rack-r0-0", "block": block}
    assert world.place("node-0-1-0") == {"rack": "rack-r0-1", "block": "block-b0"}


def test_what_does_not_count_is_in_the_number_of_contradictions() -> None:
    world = World(racks(1, 2, 2), settings(providers=[{"name": "labels"}, {"name": "inventory"}]))
    tree = pack([HyperNode("seen", "block", (Member("Node", "node-0-0-0"),))])
    put(world.api, RAW_TREES, {"metadata": {"name": "inventory"}, "spec": {"revision": 1, "tree": tree}})
    process = world.process()
    process.settle()
    process.report()
    assert parse_status(world.report()["status"]).contradictions == 1
