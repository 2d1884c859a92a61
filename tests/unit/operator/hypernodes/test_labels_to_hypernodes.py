"""From labels of nodes to HyperNodes: the whole way, in steps, on an API in memory."""

import pytest
from gkm_operator.hypernodes import tree_reconciler
from support.operator.topology import World, racks


def test_labels_become_hypernodes_and_then_nothing_is_written() -> None:
    world = World(racks(2, 2, 3))
    process = world.process()
    process.settle()
    assert world.place("node-1-0-2") == {"rack": "rack-r1-0", "block": "block-b1"}
    assert {name: len(one.members) for name, one in world.api.hypernodes().items()} == {
        "block-b0": 2,
        "block-b1": 2,
        "rack-r0-0": 3,
        "rack-r0-1": 3,
        "rack-r1-0": 3,
        "rack-r1-1": 3,
    }
    assert world.api.violations == []
    written = world.api.states
    process.settle()
    world.process().settle()
    assert world.api.states == written == 6


def test_a_tree_that_failed_to_render_is_rendered_by_the_next_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(racks(2, 2, 3))
    process = world.process()
    process.settle()
    world.label("node-1-0-2", rack="r0-0", block="b0")
    process.observe()
    with monkeypatch.context() as broken:
        broken.setattr(tree_reconciler, "volcano", None)
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):
            process.work()
    process.settle()
    assert world.place("node-1-0-2") == {"rack": "rack-r0-0", "block": "block-b0"}
