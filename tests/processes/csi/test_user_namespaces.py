"""Volumes for pods in user namespaces, through the real socket, with real mounts."""

import json
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2
from support.csi.driver import Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import node_files, publish_message
from support.csi.rig import Rig

pytestmark = pytest.mark.mounts

OLD_KERNEL = (str(Path(__file__).parents[2] / "support" / "csi" / "old_kernel_driver.py"),)
GROUP = {"child_paths": {"k.json": "/built/here/key/k.json"}}
KERNEL = {"key/__grp__k.json": json.dumps(GROUP), "key/k.json": "{}", "table": "x"}
IN_NAMESPACE = {"userNamespace": "true", "mountPath": "/cache"}


def kinds(rig: Rig, target: Path) -> list[tuple[str, str]]:
    """Return the path below the target and the file system of each mount, in the order of the kernel."""
    fields = [line.split() for line in rig.mounts(target)]
    return [(each[4].removeprefix(str(target)), each[each.index("-") + 1]) for each in fields]


@pytest.mark.parametrize("read_only", ["true", "false"])
def test_a_volume_is_a_tmpfs_with_the_overlay_inside_and_goes_without_a_trace(rig: Rig, read_only: str) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, "readOnly": read_only, **IN_NAMESPACE})
    inside = rig.namespace.inside(target)

    assert kinds(rig, target) == [("", "tmpfs"), ("/.gkm", "overlay")]
    assert sorted(path.name for path in inside.iterdir()) == [".gkm", "key", "table"]
    assert json.loads((inside / "key" / "__grp__k.json").read_text())["child_paths"] == {"k.json": "/cache/key/k.json"}
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    assert list(rig.files.layout.layers.iterdir()) == []


def test_a_repeated_publish_finds_the_volume(rig: Rig) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    for _ in range(2):
        rig.client.publish(volume, target, {"cacheName": ref.name, **IN_NAMESPACE})
    assert len(rig.mounts(target)) == 2


def test_a_repeated_publish_in_the_other_form_is_refused(rig: Rig) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    rig.client.publish(volume, target, {"cacheName": ref.name, **IN_NAMESPACE})
    code, why = rig.refused(volume, target, {"cacheName": ref.name, "mountPath": "/cache"})
    assert (code, "with other attributes" in why) == ("ALREADY_EXISTS", True)


def test_the_usage_is_that_of_the_top_and_the_content(rig: Rig) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    attributes = {"cacheName": ref.name, "readOnly": "false", "sizeLimit": "2Mi", **IN_NAMESPACE}
    rig.client.publish(volume, target, attributes)
    asked = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(target))
    before = rig.client.call("NodeGetVolumeStats", asked)
    for place in ("new", "key/new"):
        (rig.namespace.inside(target) / place).write_bytes(bytes(8192))
    after = rig.client.call("NodeGetVolumeStats", asked)

    assert not after.volume_condition.abnormal
    assert (before.usage[0].used, before.usage[0].total) == (0, 2 << 20)
    assert after.usage[0].used == 2 * 8192


def test_what_the_pod_adds_at_the_top_and_in_a_key_is_captured(rig: Rig) -> None:
    ref = rig.ready(KERNEL)
    volume, target = rig.volume()
    attributes = {"cacheName": ref.name, "readOnly": "false", "capture": "true", **IN_NAMESPACE}
    rig.client.publish(volume, target, attributes)
    inside = rig.namespace.inside(target)
    (inside / "new").mkdir()
    for place in ("new/kernel", "key/other"):
        (inside / place).write_text("mine")
    captured = rig.files.layout.capture(volume)
    asked = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(target))
    code, why = rig.client.refused("NodeUnpublishVolume", asked)
    assert (code, "the capture of its files" in why) == ("ABORTED", True)
    rig.client.unpublish_as_kubelet(volume, target)

    content = captured / "content"
    assert {str(path.relative_to(content)) for path in content.rglob("*") if path.is_file()} == {
        "new/kernel",
        "key/other",
    }
    assert rig.nothing_left(volume, target)


def test_a_volume_outlives_the_process() -> None:
    with node_files() as files, private_namespace() as namespace:
        ref, target = files.ready(content=KERNEL), files.target("csi-1")
        message = publish_message("csi-1", target, {"cacheName": ref.name, **IN_NAMESPACE})
        with driver(files, namespace) as first, Client(first.socket) as client:
            client.call("NodePublishVolume", message)
            first.kill()
        with driver(files, namespace) as second, Client(second.socket) as client:
            client.call("NodePublishVolume", message)
            assert len(namespace.mounts(target)) == 2
            client.unpublish("csi-1", target)
        assert namespace.mounts(files.root) == []


def test_a_volume_whose_record_is_lost_is_removed_at_the_next_start() -> None:
    with node_files() as files, private_namespace() as namespace:
        ref, target = files.ready(content=KERNEL), files.target("csi-1")
        with driver(files, namespace) as first, Client(first.socket) as client:
            client.publish("csi-1", target, {"cacheName": ref.name, "readOnly": "false", **IN_NAMESPACE})
            assert len(namespace.mounts(target)) == 2
            first.kill()
        files.layout.volume_record("csi-1").unlink()
        with driver(files, namespace):
            assert namespace.mounts(files.root) == []
        assert not target.exists()


def test_a_kernel_that_cannot_map_a_tmpfs_refuses_with_the_reason_and_serves_other_pods() -> None:
    with (
        node_files() as files,
        private_namespace() as namespace,
        driver(files, namespace, OLD_KERNEL) as running,
        Client(running.socket) as client,
    ):
        ref, target = files.ready(content=KERNEL), files.target("csi-1")
        asked = publish_message("csi-1", target, {"cacheName": ref.name, **IN_NAMESPACE})
        code, why = client.refused("NodePublishVolume", asked)
        assert code == "FAILED_PRECONDITION"
        assert "node-7 cannot mount for a user namespace (userNamespace): the kernel cannot map the ids" in why
        assert "Linux 6.3 or newer is needed; run the pod on another node" in why
        assert not files.layout.volume_record("csi-1").exists()
        client.publish("csi-1", target, {"cacheName": ref.name})
        assert len(namespace.mounts(target)) == 1


def test_a_cache_whose_names_cannot_be_links_is_refused_and_leaves_nothing(rig: Rig) -> None:
    ref = rig.ready({".gkm/x": "y"})
    volume, target = rig.volume()
    code, why = rig.refused(volume, target, {"cacheName": ref.name, **IN_NAMESPACE})
    assert code == "FAILED_PRECONDITION"
    assert "has the name .gkm at its top" in why
    assert "run the pod without hostUsers: false" in why
    assert rig.nothing_left(volume, target)
