"""SIGKILL at every step of publish and unpublish, restart, and the invariants of docs/design/node-state.md."""

import json
import sys
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2
from support.csi.driver import Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import node_files, publish_message
from support.host.waiting import scaled

pytestmark = pytest.mark.mounts

KINDS = ("read-only", "private", "empty", "capture", "user namespace", "capture in a user namespace")
HARNESS = Path(__file__).parents[2] / "support" / "csi"


@pytest.mark.parametrize("kind", KINDS)
def test_a_death_at_any_step_is_mended_by_the_next_start(kind: str) -> None:
    with node_files() as files, private_namespace() as namespace:
        run = namespace.run(sys.executable, HARNESS / "every_step.py", files.root, kind)

    assert run.returncode == 0, run.stderr
    steps = json.loads(run.stdout)
    # Fewer would say that the steps were not seen, not that there are none.
    assert steps["publish"] > {"read-only": 15, "empty": 25}.get(kind, 50)
    assert steps["unpublish"] > (40 if kind.startswith("capture") else 5)


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ("os.rename", ".record.json."),
        ("os.mkdir", "mount"),
        ("os.rename", ".usage.json."),
    ],
    ids=["before the record", "between record and mount", "after the mount"],
)
def test_the_process_dies_in_a_publish_and_its_successor_mounts_the_same(event: str, part: str) -> None:
    with node_files() as files, private_namespace() as namespace:
        ref = files.ready("llama", {"one": "old"})
        target = files.target("csi-1")
        message = publish_message("csi-1", target, {"cacheName": ref.name})
        killed = (str(HARNESS / "killed_driver.py"), event, part)
        with driver(files, namespace, killed) as dying, Client(dying.socket) as client:
            code, text = client.refused("NodePublishVolume", message)
            assert (code, "node-7" in text) == ("UNAVAILABLE", False), text  # the driver ended, and refused nothing
            assert dying.process.wait(scaled(60)) == -9
        recorded = files.layout.volume_record("csi-1").exists()
        files.ready("llama", {"one": "new"})

        with driver(files, namespace) as running, Client(running.socket) as client:
            if part == "mount":
                # A record without mount and target: nobody can have seen the volume, so the record went at the start.
                assert not files.layout.volume_record("csi-1").exists()
            client.call("NodePublishVolume", message)
            text = namespace.inside(target / "one").read_text()
            assert text == ("old" if recorded and part != "mount" else "new")
            assert len(namespace.mounts(target)) == 1
            client.unpublish("csi-1", target)
            assert namespace.mounts(target) == []
            assert not target.exists()
            assert list(files.layout.volumes.iterdir()) == []
            assert list(files.layout.usage.iterdir()) == []


@pytest.mark.parametrize(
    ("event", "part"),
    [("os.rmdir", "mount"), ("os.remove", "record.json")],
    ids=["after the unmount", "after the target"],
)
def test_the_process_dies_in_an_unpublish_and_its_successor_ends_it(event: str, part: str) -> None:
    with node_files() as files, private_namespace() as namespace:
        ref = files.ready()
        target = files.target("csi-1")
        unpublish = csi_pb2.NodeUnpublishVolumeRequest(volume_id="csi-1", target_path=str(target))
        killed = (str(HARNESS / "killed_driver.py"), event, part)
        with driver(files, namespace, killed) as dying, Client(dying.socket) as client:
            client.publish("csi-1", target, {"cacheName": ref.name})
            code, text = client.refused("NodeUnpublishVolume", unpublish)
            assert (code, "node-7" in text) == ("UNAVAILABLE", False), text  # the driver ended, and refused nothing
            assert dying.process.wait(scaled(60)) == -9

        with driver(files, namespace) as running, Client(running.socket) as client:
            client.call("NodeUnpublishVolume", unpublish)
            assert namespace.mounts(target) == []
            assert not target.exists()
            assert list(files.layout.volumes.iterdir()) == []


def test_mounts_outlive_the_process() -> None:
    with node_files() as files, private_namespace() as namespace:
        ref = files.ready("llama", {"one": "here"})
        target = files.target("csi-1")
        with driver(files, namespace) as first, Client(first.socket) as client:
            client.publish("csi-1", target, {"cacheName": ref.name})
            first.kill()
        assert namespace.inside(target / "one").read_text() == "here"

        with driver(files, namespace) as second, Client(second.socket) as client:
            client.publish("csi-1", target, {"cacheName": ref.name})
            assert len(namespace.mounts(target)) == 1


def test_after_a_lost_run_directory_mounts_without_a_record_are_removed() -> None:
    with node_files() as files, private_namespace() as namespace:
        ref = files.ready()
        target, foreign = files.target("csi-1"), files.target("csi-2")
        foreign.mkdir()
        with driver(files, namespace) as first, Client(first.socket) as client:
            client.publish("csi-1", target, {"cacheName": ref.name})
            first.kill()
        assert namespace.run("mount", "-t", "ramfs", "gkm:csi-2@sha256:00", foreign).returncode == 0
        files.layout.run.rename(files.root / "lost")

        with driver(files, namespace):
            assert namespace.mounts(target) == []
            assert not target.exists()
            assert len(namespace.mounts(foreign)) == 1
