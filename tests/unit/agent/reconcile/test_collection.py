"""What is kept and what goes: deleted caches, pods that still use them, what a killed agent left."""

from threading import Event

from gkm.hoststate import locks, pointers
from gkm.hoststate.names import CacheRef
from gkm.hoststate.pointers import CacheState
from gkm_agent.caches.model import WantedCache
from gkm_agent.store.pointers import PointerStore
from support.agent.fakes import FakeSource, digest_of
from support.agent.node import IMAGE, REF, Node
from support.host.waiting import scaled

ONE, TWO = digest_of("one"), digest_of("two")


def test_pods_keep_the_entry_they_mounted_when_the_digest_changes(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    node.mount(ONE)
    node.want("llama", digest=TWO)

    node.settle()

    assert node.entries() == {ONE, TWO}
    assert [(pod.name, pod.digest) for pod in node.status().pods] == [("pod-foo", ONE)]
    node.unmount()
    node.settle()
    assert node.entries() == {TWO}


def test_a_deleted_cache_leaves_nothing(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.want()

    node.settle()

    assert list(pointers.refs(node.layout)) == []
    assert not list(node.layout.caches.rglob("*"))
    assert node.entries() == set()
    assert not list(node.layout.trash.iterdir())
    assert not (node.layout.state / "locks" / ONE.removeprefix("sha256:")).exists()
    assert node.sink.held == {}


def test_a_deleted_cache_stays_until_the_last_pod_has_gone(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.mount(ONE)
    node.want()

    node.settle()

    assert node.entries() == {ONE}
    assert (node.status().state, node.status().digest) == ("Deleting", ONE)
    assert [pod.volume_id for pod in node.status().pods] == ["csi-1"]
    node.unmount()
    node.settle()
    assert node.entries() == set()
    assert node.sink.held == {}


def test_an_entry_that_a_publish_holds_is_not_collected(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.want()
    with locks.shared(node.layout.entry_lock(ONE)):
        node.settle()
        assert node.entries() == {ONE}

    node.settle()
    assert node.entries() == set()


def test_a_record_that_appears_between_looking_and_locking_saves_its_entry(node: Node) -> None:
    node.want("llama")
    node.settle()
    store = PointerStore(node.layout)
    store.remove(REF)
    node.mount(ONE)

    assert not store.collect(ONE)
    assert node.entries() == {ONE}


def test_while_a_record_cannot_be_read_nothing_is_collected(node: Node) -> None:
    node.want("llama")
    node.settle()
    record = node.layout.volume_record("csi-9")
    record.parent.mkdir()
    record.write_text("{")
    node.want()

    node.settle()

    assert node.entries() == {ONE}


def test_a_record_that_cannot_be_read_hides_no_other_pod_after_a_restart(node: Node) -> None:
    node.want("llama")
    node.mount(ONE)
    record = node.layout.volume_record("csi-9")
    record.parent.mkdir()
    record.write_text("{")
    node.settle()
    node.restart()

    node.settle()

    assert [pod.volume_id for pod in node.status().pods] == ["csi-1"], "the cache looks unused, and retention ends it"


def test_a_pod_stays_in_the_report_while_its_record_cannot_be_read(node: Node) -> None:
    node.want("llama")
    node.mount(ONE)
    node.mount(ONE, "csi-2")
    node.settle()
    node.layout.volume_record("csi-1").write_text("{")
    node.unmount("csi-2")

    node.settle()

    assert [pod.volume_id for pod in node.status().pods] == ["csi-1"]


def test_while_the_records_cannot_be_listed_nothing_is_collected(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.mount(ONE)
    node.layout.volumes.rename(node.layout.run / "elsewhere")
    node.want()

    node.settle()
    assert node.entries() == {ONE}
    (node.layout.run / "elsewhere").rename(node.layout.volumes)
    node.unmount()
    node.settle()
    assert node.entries() == set()


def test_a_source_that_completes_during_a_pass_removes_nothing(node: Node) -> None:
    node.want("llama")
    node.settle()

    class Late(FakeSource):
        """What it says is from before the moment in which it becomes complete."""

        def caches(self) -> list[WantedCache]:
            self.complete = True
            return []

    node.source = Late(complete=False)
    node.restart()
    node.agent.reconcile()

    assert node.pointer().state is CacheState.READY
    assert node.entries() == {ONE}


def test_while_the_source_is_not_complete_nothing_is_dropped(node: Node) -> None:
    node.want("llama")
    node.settle()
    node.source.complete = False
    node.want()

    assert not node.settle()

    assert node.entries() == {ONE}
    assert node.pointer().state is CacheState.READY
    assert node.status().state == "Ready"


def test_two_caches_of_one_image_share_an_entry_and_a_pull(node: Node) -> None:
    node.source.wanted = [WantedCache(CacheRef(scope, "llama"), IMAGE, ONE) for scope in ("ml-apps", "other", None)]

    assert node.settle()

    assert node.entries() == {ONE}
    assert node.images.steps().count("fetch") == 1
    assert node.images.steps().count("verify") == 3  # each object proves its own right
    assert set(node.sink.held) == {"ml-apps", "other", None}
    node.source.wanted = node.source.wanted[:1]
    assert node.settle()
    assert node.entries() == {ONE}


def test_a_cache_deleted_during_its_pull_leaves_nothing(node: Node) -> None:
    started, go_on = Event(), Event()

    def hold() -> None:
        started.set()
        assert go_on.wait(scaled(10))

    node.images.before["publish"] = hold
    node.want("llama")
    assert not node.agent.reconcile()
    assert started.wait(scaled(10))
    node.want()
    assert not node.agent.reconcile()
    go_on.set()
    node.settle()

    assert list(pointers.refs(node.layout)) == []
    assert node.entries() == set()


def test_an_entry_that_lost_its_pointer_is_found_by_its_digest(node: Node) -> None:
    node.want("llama", digest=ONE)
    node.settle()
    PointerStore(node.layout).remove(REF)
    node.images.calls.clear()

    assert node.settle()
    assert node.images.steps() == ["verify", "describe"]


def test_files_and_directories_of_others_are_left_alone(node: Node) -> None:
    stranger = node.layout.store / "not-ours"
    stranger.mkdir()
    node.want("llama")

    assert node.settle()
    assert stranger.is_dir()


def test_a_restart_removes_the_remains_of_a_killed_agent(node: Node) -> None:
    sealed = node.layout.work / "half" / "cache"
    sealed.mkdir(parents=True)
    (sealed / "file").write_text("x")
    sealed.chmod(0o555)
    (node.layout.trash / "old").mkdir()
    leftover = node.layout.pointer(REF).with_name(".cache.json.0123abcd.tmp")
    leftover.parent.mkdir(parents=True)
    leftover.write_text("{")

    node.restart()

    assert not list(node.layout.work.iterdir())
    assert not list(node.layout.caches.iterdir())
    node.settle()
    assert not list(node.layout.trash.iterdir())
