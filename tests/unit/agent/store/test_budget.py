"""store.maxBytes and store.keepSeconds: what is kept, what goes first, and what never goes."""

from pathlib import Path

import pytest
from gkm.api.config import ConfigInvalid, Store, parse
from gkm.api.errors import Reason
from gkm.gpus.values import Fault, Inventory
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState, Pointer
from msgspec import structs
from support.agent.fakes import H100, digest_of
from support.agent.node import Node
from support.agent.store_node import ENTRY_BYTES, bounded, names_of, node_in, want

TWO = Store(max_bytes=2 * ENTRY_BYTES + 10, keep_seconds=3600, min_free_percent=0)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_in(tmp_path)


def pointer(node: Node, name: str) -> Pointer:
    return node.pointer(CacheRef("ml-apps", name))


def kept(node: Node, *mounted: str) -> None:
    """Leave entries that no cache names, mounted one hour after another in this order."""
    want(node, *mounted)
    assert node.settle()
    for name in mounted:
        node.now += 3600
        node.mount(digest_of(name), f"csi-{name}", CacheRef("ml-apps", name))
        node.settle()
        node.unmount(f"csi-{name}")
        node.settle()


def test_an_unnamed_entry_stays_for_its_retention(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a")
    node.settle()
    want(node)

    node.settle()
    assert names_of(node, "a") == {"a"}
    node.now += 3599
    node.settle()
    assert names_of(node, "a") == {"a"}
    node.now += 2
    node.settle()
    assert names_of(node, "a") == set()


def test_its_time_runs_on_over_a_restart(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a")
    node.settle()
    want(node)
    node.settle()
    node.now += 3000
    bounded(node, TWO)
    node.settle()
    assert names_of(node, "a") == {"a"}
    node.now += 700

    node.settle()

    assert names_of(node, "a") == set()


def test_a_cache_that_comes_back_in_time_is_not_fetched_again(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a")
    node.settle()
    want(node)
    node.settle()
    want(node, "a")

    assert node.settle()
    assert node.images.steps().count("fetch") == 1


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_least_recently_mounted_entry_makes_room(node: Node, order: tuple[str, str]) -> None:
    bounded(node, structs.replace(TWO, keep_seconds=1e9))
    kept(node, *order)
    want(node, "c")

    assert node.settle()
    assert names_of(node, "a", "b", "c") == {order[1], "c"}


def test_what_was_mounted_last_is_known_after_a_restart(node: Node) -> None:
    bounds = structs.replace(TWO, keep_seconds=1e9)
    bounded(node, bounds)
    kept(node, "b", "a")
    bounded(node, bounds)
    want(node, "c")

    assert node.settle()
    assert names_of(node, "a", "b", "c") == {"a", "c"}


@pytest.mark.parametrize("content", [b"{", b'{"entries": {"../../etc": {}}}', b"\xff", b"[]"])
def test_an_invalid_catalog_starts_empty(node: Node, content: bytes) -> None:
    bounded(node, TWO)
    want(node, "a")
    node.settle()
    (node.layout.catalog).write_bytes(content)
    store = bounded(node, TWO)

    assert node.settle()
    assert set(store.catalog.entries()) == {digest_of("a")}
    assert store.catalog.entries()[digest_of("a")].size_bytes == ENTRY_BYTES


def test_what_is_wanted_never_goes_and_the_refusal_has_the_figures(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a", "b")
    assert node.settle()
    want(node, "a", "b", "c")

    assert not node.settle()

    refused = pointer(node, "c")
    assert (refused.state, refused.reason) == (CacheState.FAILED, Reason.DISK_FULL)
    assert f"is {2 * ENTRY_BYTES + 10} bytes (store.maxBytes)" in refused.message
    assert f"it has {2 * ENTRY_BYTES}, {ENTRY_BYTES} more are needed" in refused.message
    assert f"{ENTRY_BYTES - 10} bytes more are lacking" in refused.message
    assert names_of(node, "a", "b") == {"a", "b"}
    assert [pointer(node, name).state for name in ("a", "b")] == [CacheState.READY] * 2


def test_what_a_pod_mounts_never_goes(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a", "b")
    node.settle()
    node.mount(digest_of("a"), ref=CacheRef("ml-apps", "a"))
    node.mount(digest_of("b"), "csi-2", CacheRef("ml-apps", "b"))
    want(node, "c")

    assert not node.settle()
    assert names_of(node, "a", "b", "c") == {"a", "b"}


def test_nothing_is_evicted_in_vain(node: Node) -> None:
    bounded(node, structs.replace(TWO, max_bytes=3 * ENTRY_BYTES))
    want(node, "a", "b", "c")
    assert node.settle()
    want(node, "a", "b")
    node.settle()
    bounded(node, structs.replace(TWO, max_bytes=2 * ENTRY_BYTES + 10))
    want(node, "a", "b", "d")

    assert not node.settle()
    assert names_of(node, "a", "b") == {"a", "b"}
    assert pointer(node, "d").reason == Reason.DISK_FULL


def test_when_room_comes_the_refused_cache_is_tried_at_once(node: Node) -> None:
    bounded(node, structs.replace(TWO, keep_seconds=0))
    want(node, "a", "b")
    node.settle()
    want(node, "a", "b", "c")
    assert not node.settle()
    calls = len(node.images.calls)
    assert not node.settle()
    assert len(node.images.calls) == calls  # it waits, and asks no registry
    want(node, "a", "c")
    node.settle()

    assert node.settle()
    assert names_of(node, "a", "b", "c") == {"a", "c"}


def test_a_node_that_stays_full_asks_no_registry_again(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a", "b")
    assert node.settle()
    want(node, "a", "b", "c")
    assert not node.settle()
    asked = list(node.images.calls)
    for _ in range(5):
        node.now += 3600
        assert not node.settle()
    assert node.images.calls == asked
    assert f"it has {2 * ENTRY_BYTES}, {ENTRY_BYTES} more are needed" in pointer(node, "c").message

    node.policy = "another one"
    node.now += 3600
    assert not node.settle()
    assert ("verify", digest_of("c")) in node.images.calls[len(asked) :]


def test_a_cache_that_fits_no_gpu_gives_way(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a", "b")
    node.settle()
    node.read_gpus(Inventory((structs.replace(H100, arch="80"),)))
    node.settle()
    assert names_of(node, "a", "b") == {"a", "b"}
    node.images.archs = ("80",)
    want(node, "a", "b", "c")

    node.settle()

    assert pointer(node, "c").state is CacheState.READY
    assert len(names_of(node, "a", "b")) == 1
    node.settle()
    assert {pointer(node, name).state for name in ("a", "b")} == {CacheState.INCOMPATIBLE}


def test_a_cache_whose_gpu_is_lost_for_now_keeps_its_entry(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a", "b")
    node.settle()
    lost = structs.replace(H100, faults=(Fault("nvmlDeviceGetName", "GPU_IS_LOST", "GPU is lost"),))
    node.read_gpus(Inventory((lost,)))
    node.settle()
    bounded(node, structs.replace(TWO, max_bytes=ENTRY_BYTES))

    node.settle()
    assert names_of(node, "a", "b") == {"a", "b"}


def test_a_smaller_budget_evicts_unused_entries_and_no_more(node: Node) -> None:
    bounded(node, structs.replace(TWO, max_bytes=None))
    want(node, "a", "b", "c")
    node.settle()
    want(node, "c")
    node.settle()
    assert names_of(node, "a", "b", "c") == {"a", "b", "c"}
    bounded(node, structs.replace(TWO, max_bytes=10))

    node.settle()
    assert names_of(node, "a", "b", "c") == {"c"}


def test_while_not_all_that_is_wanted_is_known_nothing_is_evicted(node: Node) -> None:
    bounded(node, structs.replace(TWO, max_bytes=None))
    want(node, "a", "b")
    node.settle()
    bounded(node, structs.replace(TWO, max_bytes=10))
    node.source.complete = False
    want(node)

    node.settle()
    assert names_of(node, "a", "b") == {"a", "b"}


def test_two_pulls_at_once_are_not_given_the_same_room(node: Node) -> None:
    bounded(node, structs.replace(TWO, max_bytes=ENTRY_BYTES + 10))
    want(node, "a", "b")

    assert not node.settle()

    assert sorted(pointer(node, name).state for name in ("a", "b")) == [CacheState.FAILED, CacheState.READY]
    assert len(names_of(node, "a", "b")) == 1


def test_idle_turns_write_no_notes(node: Node) -> None:
    bounded(node, TWO)
    want(node, "a")
    node.mount(digest_of("a"))
    node.settle()
    path = node.layout.catalog
    before = path.stat().st_ino
    node.now += 600

    node.settle()
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    [
        "maxBytes: 0",
        "maxBytes: -1",
        "keepSeconds: -1",
        "minFreePercent: 91",
        "minFreePercent: -1",
        "checkInterval: -1",
        "maxByte: 5",
    ],
)
def test_bounds_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"\$\.store"):
        parse(f"store: {{{text}}}")
