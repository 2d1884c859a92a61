"""What an inventory offers to a run."""

import pytest
from gkm.packing.domains.capacity import capacity
from gkm.packing.inventory import MAX_NODE_GPUS, InvalidInventoryError, Inventory
from gkm.packing.values import Ceiling, Location, Node, Request


def place(domain: str, block: str = "b1") -> Location:
    return Location("r", "c", block, domain)


def test_slots_are_counted_node_by_node_because_a_pod_lies_on_one() -> None:
    nodes = [Node("n1", place("d1"), 8, 7), Node("n2", place("d1"), 8, 3), Node("n3", place("d2"), 8, 8)]
    offer = capacity(Inventory.from_nodes(nodes), Request(gpus=4, pod_gpus=4, group_gpus=4))
    assert offer.domain_slots.tolist() == [1, 2]
    assert offer.free.tolist() == [10, 8]


def test_domains_come_in_the_order_of_their_places_whatever_order_the_nodes_have() -> None:
    nodes = [Node("n3", place("d1", "b2"), 1, 1), Node("n2", place("d2"), 1, 1), Node("n1", place("d1"), 1, 0)]
    inventory = Inventory.from_nodes(nodes)
    assert inventory.places == (place("d1"), place("d2"), place("d1", "b2"))
    assert inventory.blocks.tolist() == [0, 0, 1]
    assert Inventory.from_nodes(reversed(nodes)).nodes == inventory.nodes


def test_blocks_of_one_name_in_two_clusters_are_two() -> None:
    nodes = [Node("n1", Location("r", "c1", "b", "d"), 1, 1), Node("n2", Location("r", "c2", "b", "d"), 1, 1)]
    assert Inventory.from_nodes(nodes).blocks.tolist() == [0, 1]


def test_nodes_that_no_scope_of_the_run_takes_offer_nothing() -> None:
    nodes = [
        Node("n1", place("d1"), 4, 4, frozenset({"a"})),
        Node("n2", place("d1"), 4, 3, frozenset({"b"})),
        Node("n3", place("d1"), 4, 2, frozenset({"a", "b"})),
        Node("n4", place("d1"), 4, 1, frozenset({"other"})),
    ]
    request = Request(gpus=1, pod_gpus=1, group_gpus=1, ceilings=(Ceiling("a", 9), Ceiling("b", 9)))
    offer = capacity(Inventory.from_nodes(nodes), request)
    assert offer.free.tolist() == [9]
    assert dict(zip(offer.kinds, offer.slots[0].tolist(), strict=True)) == {
        frozenset({0}): 4,
        frozenset({1}): 3,
        frozenset({0, 1}): 2,
    }


def test_an_inventory_without_nodes_offers_nothing() -> None:
    offer = capacity(Inventory.from_nodes([]), Request(gpus=1, pod_gpus=1, group_gpus=1))
    assert offer.domain_slots.tolist() == []


@pytest.mark.parametrize(("total", "free"), [(8, -1), (8, 9), (MAX_NODE_GPUS + 1, 1), (8, float("nan")), (8, True)])
def test_a_number_of_gpus_that_cannot_be_is_refused_with_the_name_of_the_node(total: int, free: int) -> None:
    with pytest.raises(InvalidInventoryError, match="'n1'"):
        Inventory.from_nodes([Node("n1", place("d1"), total, free)])


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidInventoryError, match="two nodes are called 'n1'"):
        Inventory.from_nodes([Node("n1", place("d1"), 8, 8), Node("n1", place("d2"), 8, 8)])
