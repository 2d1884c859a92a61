"""GPUs and health of nodes, and their totals."""

from collections.abc import Mapping

from gkm.api.topology_settings import Topology
from gkm.topology.nodes import Node
from gkm_cli.topology.capacity import Sums, Totals, node_state
from support.topology.kube_lists import node


def totals(*nodes: Node, used: Mapping[str, int | None]) -> Totals:
    states = [node_state(each, used.get(each.name, 0), Topology()) for each in nodes]
    return Sums(states).of(0, len(states))


def test_nodes_have_their_capacity_and_what_is_free() -> None:
    listed = [node("n1", {}), node("n2", {}), node("n3", {})]

    found = totals(*listed[:2], used={"n1": 3})
    assert (found.nodes, found.capacity, found.free, found.wholly_free) == (2, 16, 13, 1)
    assert totals(*listed, used={"n1": 3}).free == 21


def test_unhealthy_nodes_have_no_free_gpus_and_are_counted() -> None:
    nodes = [
        node("n1", {}, unschedulable=True),
        node("n2", {}, taints=[{"key": "broken", "effect": "NoSchedule"}]),
        node("n3", {"gkm.io/fabric-health": "unhealthy"}),
        node("n4", {}, gpus="0"),
        node("n5", {}, gpus="NaN"),
        node("n6", {}),
        node("n7", {}, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]),
    ]

    found = totals(*nodes, used={"n6": None})

    assert (found.cordoned, found.tainted, found.fabric_unhealthy, found.without_gpus) == (1, 1, 1, 1)
    assert (found.unknown, found.usable, found.nodes) == (2, 1, 7)
    assert (found.free, found.capacity, found.wholly_free) == (8, 40, 1)
