"""Where every node holds one pod, pods and spares take the nodes one after another: what any search comes to."""

from gkm.packing.domains.capacity import capacity
from gkm.packing.inventory import Inventory
from gkm.packing.nodes.alone import lay_out_alone, nodes_alone
from gkm.packing.nodes.inside import Seat, Wanted, lay_out
from gkm.packing.values import Location, Node, Request
from hypothesis import given
from hypothesis import strategies as st

HERE = Location("region", "cluster", "block", "domain")


@given(
    st.lists(st.integers(0, 7), max_size=12),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), max_size=4),
)
def test_it_is_the_layout_that_a_search_finds(rest: list[int], groups: list[tuple[int, int]]) -> None:
    wanted = [Wanted(pods, spares) for pods, spares in groups]
    if not rest or sum(pods + spares for pods, spares in groups) > len(rest):
        return
    nodes = [Node(f"n{number:02}", HERE, 15, 8 + left) for number, left in enumerate(rest)]
    offer = capacity(Inventory.from_nodes(nodes), Request(8, 8, 8))
    names = nodes_alone(offer, 0)
    assert names is not None
    searched = lay_out([Seat(node.name, 1, node.free - 8) for node in nodes], wanted)
    assert lay_out_alone(names, wanted) == searched.groups


def test_nodes_without_a_slot_are_left_out_and_tighter_ones_come_first() -> None:
    free = {"a": 7, "b": 12, "c": 8}
    offer = capacity(Inventory.from_nodes(Node(name, HERE, 16, gpus) for name, gpus in free.items()), Request(8, 8, 8))
    assert nodes_alone(offer, 0) == ["c", "b"]


def test_a_node_with_two_slots_needs_a_search() -> None:
    offer = capacity(Inventory.from_nodes([Node("a", HERE, 16, 16), Node("b", HERE, 8, 8)]), Request(8, 8, 8))
    assert nodes_alone(offer, 0) is None
