"""The agent beside private volumes, and beside those that got no cache: their records name no digest."""

import msgspec
import pytest
from gkm.api.nodes import NodeCacheStatus
from gkm.hoststate import records
from gkm.hoststate.layout import Layout
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm.hoststate.records import VolumeOptions, VolumeRecord
from support.agent.fakes import FakeImages, digest_of
from support.agent.node import REF, Node

OLD, NEW = digest_of("old"), digest_of("new")


def recorded(node: Node, volume: str, digest: str, ref: CacheRef = REF, **options: bool | str | int) -> VolumeRecord:
    """Record a volume as the CSI process does."""
    told = VolumeOptions(private=True, size_limit=1 << 20, **options)  # type: ignore[arg-type]
    record = VolumeRecord(
        volume_id=volume,
        target_path="/pods/x/mount",
        pod_name=f"pod-{volume}",
        pod_namespace="ml-apps",
        pod_uid="uid",
        ref=ref,
        digest=digest,
        volume_size=0,
        start_time="2026-01-01T00:00:00Z",
        options=told,
        empty_because="" if digest else f"{ref} is Downloading on node-1, 61 %; kubelet retries",
    )
    records.save(node.layout, record)
    return record


@pytest.fixture
def node(layout: Layout) -> Node:
    return Node(layout, FakeImages(layout))


def test_a_record_comes_back_as_it_was_written(node: Node) -> None:
    for digest in ("", OLD):
        record = recorded(node, f"csi-{bool(digest)}", digest, mount_path="/cache", or_empty=True, capture=True)
        assert records.load(node.layout, record.volume_id) == record
        assert record.is_private


def test_an_empty_volume_stops_no_collection(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-empty", "")

    node.want("llama", digest=NEW)
    node.settle()
    node.settle()

    assert node.entries() == {NEW}


def test_an_empty_volume_names_no_entry(node: Node) -> None:
    recorded(node, "csi-empty", "")
    node.want("llama", digest=OLD)
    assert node.settle()
    node.source.wanted = []
    node.settle()
    node.settle()
    assert node.entries() == set()


def test_an_empty_volume_and_a_restart(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    for _ in range(2):
        recorded(node, "csi-empty", "")
        node.restart()
        node.want("llama", digest=OLD)
        assert node.settle()
        records.remove(node.layout, "csi-empty")
        assert node.settle()
    assert node.entries() == {OLD}
    assert node.pointer().state is CacheState.READY


def test_a_private_volume_keeps_its_entry_and_its_tree(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-private", OLD, mount_path="/cache")
    tree = node.layout.relocated(OLD) / "key-open" / "tree"
    tree.mkdir(parents=True)

    node.want("llama", digest=NEW)
    node.settle()
    node.settle()
    assert node.entries() == {OLD, NEW}
    assert tree.is_dir()

    records.remove(node.layout, "csi-private")
    node.settle()
    node.settle()
    assert node.entries() == {NEW}
    assert not node.layout.relocated(OLD).exists()


def test_what_is_captured_is_not_part_of_the_store(node: Node) -> None:
    kept = node.layout.captured / "csi-1"
    half = node.layout.captured / ".tmp-csi-2"
    for place in (kept, half):
        (place / "content").mkdir(parents=True)
        (place / "captured.json").write_text('{"bytes": 1}')
    node.want("llama", digest=OLD)
    node.settle()
    node.restart()
    node.want("llama", digest=OLD)
    node.settle()
    node.source.wanted = []
    node.settle()
    assert kept.is_dir()
    assert half.is_dir()


def is_admitted(status: NodeCacheStatus) -> bool:
    """Return whether an API server takes this for the status of a cache: the CRD is made from the same types."""
    try:
        msgspec.convert(msgspec.to_builtins(status), NodeCacheStatus)
    except msgspec.ValidationError:
        return False
    return True


def test_the_status_names_a_pod_with_a_private_volume(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-1", OLD)
    node.settle()
    (used,) = node.status().pods
    assert (used.name, used.volume_id, used.digest) == ("pod-csi-1", "csi-1", OLD)
    assert is_admitted(node.status())


def test_an_empty_volume_makes_no_status_that_the_api_server_refuses(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-1", "")
    node.settle()
    assert is_admitted(node.status())


def test_a_name_that_a_pod_made_up_gets_no_status(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-1", "", CacheRef("ml-apps", "never-heard-of"))
    node.settle()
    assert set(node.sink.held["ml-apps"].caches) == {"llama"}


def test_a_deleted_cache_under_an_empty_volume_is_removed(node: Node) -> None:
    node.want("llama", digest=OLD)
    assert node.settle()
    recorded(node, "csi-empty", "")
    node.source.wanted = []
    node.settle()
    node.settle()
    assert node.entries() == set()
    assert not node.layout.pointer(REF).exists()


def test_a_record_of_the_first_version_is_read(node: Node) -> None:
    node.mount(OLD)
    path = node.layout.volume_record("csi-1")
    text = path.read_text()
    cut = text[: text.index(' "options"')] + text[text.index(' "podName"') :]
    path.write_text(cut.replace(' "emptyBecause": "",\n', ""))
    found = records.load(node.layout, "csi-1")
    assert found is not None
    assert found.options == VolumeOptions()
    assert not found.is_private
