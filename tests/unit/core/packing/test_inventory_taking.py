"""What is left of an inventory when GPUs are taken is the inventory of the nodes as they then are."""

from dataclasses import replace

import pytest
from gkm.packing.inventory import InvalidInventoryError, Inventory
from gkm.packing.values import Node, Share
from hypothesis import given
from hypothesis import strategies as st
from support.packing.cases import inventories


@given(inventories(domains=6), st.data())
def test_what_is_left_is_the_inventory_of_what_is_left(nodes: tuple[Node, ...], data: st.DataObject) -> None:
    taken = {node.name: data.draw(st.integers(0, node.free)) for node in nodes}
    before = Inventory.from_nodes(nodes)
    left = before.taking(Share(name, gpus) for name, gpus in taken.items())
    anew = Inventory.from_nodes(replace(node, free=node.free - taken[node.name]) for node in nodes)
    assert left.nodes == anew.nodes
    assert left.free.tolist() == anew.free.tolist()
    assert (left.places, left.starts.tolist(), left.blocks.tolist()) == (
        anew.places,
        anew.starts.tolist(),
        anew.blocks.tolist(),
    )
    assert before.free.tolist() == Inventory.from_nodes(nodes).free.tolist()


@given(inventories(domains=6).filter(bool))
def test_a_node_gives_more_than_once_and_no_more_than_it_has(nodes: tuple[Node, ...]) -> None:
    name, free = nodes[0].name, nodes[0].free
    left = Inventory.from_nodes(nodes).taking([Share(name, 0), Share(name, free)])
    assert left.nodes[left.numbers[name]].free == 0
    with pytest.raises(InvalidInventoryError, match="cannot be taken"):
        left.taking([Share(name, 1)])
    with pytest.raises(InvalidInventoryError, match="cannot be taken"):
        left.taking([Share(name, -1)])


def test_a_node_that_is_not_there_gives_nothing() -> None:
    with pytest.raises(InvalidInventoryError, match="'elsewhere' is not in the inventory"):
        Inventory.from_nodes([]).taking([Share("elsewhere", 1)])
