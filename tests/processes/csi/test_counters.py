"""The counters of the CSI process in its file: of the real process, after a restart, and with a damaged file."""

from collections.abc import Iterator

import pytest
from gkm.hoststate import counters
from gkm.hoststate.layout import Layout
from support.csi.driver import Client, driver
from support.csi.namespaces import MountNamespace, private_namespace
from support.csi.nodes import NodeFiles, node_files, publish_message
from support.csi.rig import Rig
from support.host.waiting import until


@pytest.fixture
def bare() -> Iterator[tuple[NodeFiles, MountNamespace]]:
    with node_files() as files, private_namespace() as namespace:
        yield files, namespace


def counted(layout: Layout) -> dict[str, int]:
    return {code: sum(histogram.counts) for code, histogram in counters.load(layout).publishes.items()}


@pytest.mark.mounts
def test_publishes_are_counted_by_code_and_a_restart_continues(bare: tuple[NodeFiles, MountNamespace]) -> None:
    files, _ = bare
    ref = files.ready()
    target = files.target("csi-1")
    nowhere = publish_message("csi-2", files.target("csi-2"), {"cacheName": "nowhere"})
    with driver(*bare) as first, Client(first.socket) as client:
        client.publish("csi-1", target, {"cacheName": ref.name})
        assert client.refused("NodePublishVolume", nowhere)[1].startswith("GKMCache ml-apps/nowhere is not known")
        client.unpublish("csi-1", target)
        until(lambda: counted(files.layout) == {"OK": 1, "UNAVAILABLE": 1}, "both publishes are in the file")
        assert client.refused("NodePublishVolume", nowhere)[1].startswith("GKMCache ml-apps/nowhere is not known")
        assert first.stop() == 0
        # What came after the last write is written at the end.
        assert counted(files.layout) == {"OK": 1, "UNAVAILABLE": 2}

    with driver(*bare) as second, Client(second.socket) as client:
        client.publish("csi-1", target, {"cacheName": ref.name})
        until(lambda: counted(files.layout) == {"OK": 2, "UNAVAILABLE": 2}, "the second process went on")
        seconds = counters.load(files.layout).publishes["OK"].seconds
        assert seconds > 0


@pytest.mark.mounts
def test_the_file_is_there_and_good_from_the_start_on(bare: tuple[NodeFiles, MountNamespace]) -> None:
    files, _ = bare
    path = files.layout.counters
    path.parent.mkdir(parents=True)
    path.write_text('{"version": 1, "publish": {"ml-apps/llama": "a lie"}}')
    path.with_name(".counters.json.0badcafe.tmp").write_text("half")

    with driver(*bare) as running:
        running.wait_for("CSI driver ready")
        assert "counters.json" in running.logged[0]["reason"]
        until(lambda: b"a lie" not in path.read_bytes(), "the file is written anew")
        assert counted(files.layout) == {}
        assert [found.name for found in path.parent.iterdir()] == ["counters.json"]


@pytest.mark.mounts
def test_a_file_that_cannot_be_written_costs_no_publish(bare: tuple[NodeFiles, MountNamespace]) -> None:
    files, _ = bare
    files.layout.counters.mkdir(parents=True)
    ref = files.ready()

    with driver(*bare) as running, Client(running.socket) as client:
        client.publish("csi-1", files.target("csi-1"), {"cacheName": ref.name})
        assert (
            "counters.json"
            in running.wait_for("counters of the CSI driver not written to their file, tried again")["path"]
        )
        client.unpublish("csi-1", files.target("csi-1"))
        assert running.stop() == 0


@pytest.mark.mounts
def test_what_a_program_leaves_in_a_private_layer_is_counted_once(rig: Rig) -> None:
    ref = rig.ready({"kernel/one.cubin": "shared"})
    private = {"cacheName": ref.name, "readOnly": "false"}
    scripts = {
        "hits": (private, "cat kernel/one.cubin"),
        "removes-what-it-writes": (private, "echo x > new; rm new"),
        "writes-a-directory-only": (private, "mkdir new"),
        "compiles": (private, "mkdir new && echo x > new/two.cubin"),
        "read-only": ({"cacheName": ref.name}, "cat kernel/one.cubin"),
        "had-no-cache": ({"cacheName": "nowhere", "ifUnavailable": "empty"}, "echo x > new"),
        "had-no-cache-and-needed-none": ({"cacheName": "nowhere", "ifUnavailable": "empty"}, "true"),
    }
    for attributes, script in scripts.values():
        volume, target = rig.volume()
        rig.client.publish(volume, target, attributes)
        assert rig.namespace.run("sh", "-ec", f'cd "$1"; {script}', "sh", target).returncode == 0
        for _ in range(2):
            rig.client.unpublish(volume, target)

    def layers() -> counters.EndedLayers:
        return counters.load(rig.files.layout).layers

    until(lambda: layers().empty + layers().written == 4, "every private layer above a cache is counted")
    until(lambda: counters.load(rig.files.layout).without_cache > 0, "a volume without a cache is counted")
    assert layers() == counters.EndedLayers(empty=3, written=1, written_bytes=4096)
    assert counters.load(rig.files.layout).without_cache == 1
