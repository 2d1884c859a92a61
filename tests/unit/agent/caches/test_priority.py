"""Which caches a node takes on, and which of them it pulls first."""

import os
import time
from dataclasses import replace

import pytest
from gkm.gpus.values import Inventory
from gkm.hoststate import waiting_pods as waiting
from gkm.hoststate.names import CacheRef
from gkm_agent.caches.model import WantedCache
from gkm_agent.pulls.scheduler import MAX_PULLS
from support.agent.node import IMAGE, Node

NO_GPU = Inventory()
PER_NAMESPACE = MAX_PULLS - 1
"""So many caches of one namespace are begun together, in no order among them."""


def image(number: int) -> str:
    return IMAGE.replace("cache:1", f"cache-{number}:1")


def fetched(node: Node) -> list[str]:
    return [what for step, what in node.images.calls if step == "resolve"]


@pytest.fixture
def many(node: Node) -> Node:
    """Ten caches, none of which anybody pulled before."""
    node.source.wanted = [WantedCache(CacheRef("ml-apps", f"cache-{number}"), image(number)) for number in range(10)]
    node.images.tags = {image(number): f"sha256:{number:064d}" for number in range(10)}
    return node


def test_what_a_pod_waits_for_is_pulled_first(many: Node) -> None:
    waited_for = range(9, 9 - PER_NAMESPACE, -1)
    for number in waited_for:
        waiting.mark_waiting(many.layout, CacheRef("ml-apps", f"cache-{number}"))
    assert many.settle()
    assert set(fetched(many)[:PER_NAMESPACE]) == {image(number) for number in waited_for}
    assert len(fetched(many)) == 10


def test_a_pod_that_stopped_asking_has_no_turn_before_others(many: Node) -> None:
    ref = CacheRef("ml-apps", "cache-9")
    waiting.mark_waiting(many.layout, ref)
    long_ago = time.time() - waiting.EXPIRY_SECONDS - 1
    os.utime(many.layout.waiting_file(ref), (long_ago, long_ago))
    many.settle()
    assert image(9) not in fetched(many)[:PER_NAMESPACE]


def test_the_note_goes_with_its_cache(node: Node) -> None:
    node.want("llama")
    node.settle()
    waiting.mark_waiting(node.layout, node.source.wanted[0].ref)
    node.want()
    node.settle()
    assert not waiting.is_pod_waiting(node.layout, CacheRef("ml-apps", "llama"))
    assert not node.layout.waiting_file(CacheRef("ml-apps", "llama")).parent.exists()


@pytest.mark.parametrize(("inventory", "taken"), [(NO_GPU, False), (Inventory(errors=("no answer",)), True)])
def test_a_cache_that_chooses_no_nodes_is_for_nodes_with_gpus(node: Node, inventory: Inventory, *, taken: bool) -> None:
    node.gpus.now = inventory
    node.restart()
    node.want("llama")
    node.source.wanted = [replace(cache, selected=False) for cache in node.source.wanted]
    node.settle()
    assert bool(node.sink.held) is taken


def test_a_node_that_was_chosen_says_that_it_has_no_gpu(node: Node) -> None:
    node.gpus.now = NO_GPU
    node.restart()
    node.want("llama")
    node.settle()
    assert (node.status().state, node.status().reason) == ("Incompatible", "NoGPU")


def test_a_driver_that_goes_for_a_while_takes_no_cache_with_it(node: Node) -> None:
    node.want("llama")
    node.source.wanted = [replace(cache, selected=False) for cache in node.source.wanted]
    node.settle()
    entries = node.entries()
    node.gpus.now = NO_GPU
    node.restart()
    node.settle()
    assert node.entries() == entries
    assert node.status().reason == "NoGPU"
