"""Valid and invalid requests of kubelet."""

from pathlib import Path

import pytest
from gkm.hoststate.names import CacheRef
from gkm.hoststate.records import READ_ONLY
from gkm_csi.proto.csi_pb2 import NodePublishVolumeRequest, VolumeCapability
from gkm_csi.status_errors import Code, StatusError
from gkm_csi.volumes import request
from hypothesis import given
from hypothesis import strategies as st
from support.csi.nodes import publish_message

KUBELET = Path("/var/lib/kubelet")
TARGET = KUBELET / "pods/uid/volumes/kubernetes.io~csi/cache/mount"
OF_KUBELET = "csi.storage.k8s.io/"


def message() -> NodePublishVolumeRequest:
    return publish_message("csi-1", TARGET, {"cacheName": "llama"}, uid="uid-1")


def refused(asked: NodePublishVolumeRequest, code: Code = Code.INVALID_ARGUMENT) -> str:
    with pytest.raises(StatusError) as caught:
        request.parse_publish(asked, KUBELET)
    assert caught.value.code is code
    return caught.value.message


def test_a_request_of_kubelet_is_parsed() -> None:
    assert request.parse_publish(message(), KUBELET) == request.PublishRequest(
        request.VolumeTarget("csi-1", TARGET),
        request.PodInfo("trainer-0", "ml-apps", "uid-1"),
        CacheRef("ml-apps", "llama"),
        READ_ONLY,
    )


@pytest.mark.parametrize("mode", ["SINGLE_NODE_WRITER", "SINGLE_NODE_READER_ONLY", "SINGLE_NODE_SINGLE_WRITER"])
def test_a_volume_of_one_node_is_accepted(mode: str) -> None:
    asked = message()
    asked.volume_capability.access_mode.mode = getattr(VolumeCapability.AccessMode, mode)
    assert request.parse_publish(asked, KUBELET) == request.parse_publish(message(), KUBELET)


def test_fs_type_group_and_readonly_change_nothing() -> None:
    asked = message()
    asked.readonly = True
    asked.volume_capability.mount.fs_type = "ext4"
    asked.volume_capability.mount.volume_mount_group = "1000"
    assert request.parse_publish(asked, KUBELET) == request.parse_publish(message(), KUBELET)


@pytest.mark.parametrize("mode", [0, 3, 4, 5, 99])
def test_a_volume_of_many_nodes_is_refused(mode: int) -> None:
    asked = message()
    asked.volume_capability.access_mode.mode = mode  # type: ignore[assignment]
    assert "SINGLE_NODE" in refused(asked)


@pytest.mark.parametrize("field", ["volume_id", "target_path", "volume_capability"])
def test_a_missing_field_is_named(field: str) -> None:
    asked = message()
    asked.ClearField(field)
    assert refused(asked) == f"{field} is missing"


def test_a_block_device_is_refused() -> None:
    asked = message()
    asked.volume_capability.block.SetInParent()
    assert "block device" in refused(asked)


def test_a_capability_without_a_kind_is_refused() -> None:
    asked = message()
    asked.volume_capability.ClearField("mount")
    assert "must ask for a mount" in refused(asked)


def test_mount_flags_are_refused() -> None:
    asked = message()
    asked.volume_capability.mount.mount_flags.append("rw")
    assert "mount flags" in refused(asked)


@pytest.mark.parametrize("key", ["ephemeral", "pod.name", "pod.namespace", "pod.uid"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_request_without_pod_info_is_refused(key: str, value: str | None) -> None:
    asked = message()
    del asked.volume_context[OF_KUBELET + key]
    if value is not None and key != "ephemeral":
        asked.volume_context[OF_KUBELET + key] = value
    text = refused(asked, Code.FAILED_PRECONDITION)
    assert OF_KUBELET + key in text
    assert "podInfoOnMount" in text


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_a_persistent_volume_is_refused(value: str) -> None:
    asked = message()
    asked.volume_context[OF_KUBELET + "ephemeral"] = value
    assert "inline volumes" in refused(asked)


@pytest.mark.parametrize("namespace", ["..", "a/b", "_cluster-scoped", "a.b", "A"])
def test_a_namespace_that_is_none_is_refused(namespace: str) -> None:
    asked = message()
    asked.volume_context[OF_KUBELET + "pod.namespace"] = namespace
    assert "podInfoOnMount" in refused(asked, Code.FAILED_PRECONDITION)


@pytest.mark.parametrize("key", ["pod.name", "pod.uid"])
def test_an_endless_name_of_a_pod_is_refused(key: str) -> None:
    asked = message()
    asked.volume_context[OF_KUBELET + key] = "x" * 254
    assert "too long" in refused(asked, Code.FAILED_PRECONDITION)


def test_a_huge_context_is_refused() -> None:
    asked = message()
    for number in range(2000):
        asked.volume_context[f"key-{number}"] = "value"
    assert "4096" in refused(asked)


@pytest.mark.parametrize(
    "target",
    [
        "relative/mount",
        "/var/lib/kubelet/pods/../../../../etc/x",
        "/var/lib/kubelet/pods/./a/b",
        "/var/lib/kubelet/pods//a/b",
        "/var/lib/kubelet/pods/a/b/",
        "/var/lib/kubelet/pods/a\0b/c",
        "/var/lib/kubelet/pods/a\nb/c",
        "/var/lib/kubelet/pods/" + "a/" * 2050 + "b",
    ],
)
def test_odd_targets_are_refused(target: str) -> None:
    asked = message()
    asked.target_path = target
    assert "target_path" in refused(asked)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "//var/lib/kubelet/pods/a/b",
        "/etc",
        "/var/lib/kubelet",
        "/var/lib/kubelet/pods",
        "/var/lib/kubelet-other/pods/a/b",
    ],
)
def test_a_target_outside_of_kubelet_is_a_fault_of_the_installation(target: str) -> None:
    asked = message()
    asked.target_path = target
    assert (
        refused(asked, Code.FAILED_PRECONDITION)
        == "target_path is not below /var/lib/kubelet, kubelet's root directory in the options of csi.gkm.io"
    )


@given(
    volume=st.text(max_size=20),
    target=st.text(max_size=40).map(lambda text: f"/var/lib/kubelet/pods/{text}"),
    context=st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5),
)
def test_whatever_comes_is_either_refused_or_harmless(volume: str, target: str, context: dict[str, str]) -> None:
    asked = message()
    asked.volume_id, asked.target_path = volume, target
    asked.volume_context.update(context)
    try:
        taken = request.parse_publish(asked, KUBELET)
    except StatusError:
        return
    assert "/" not in taken.volume.volume_id
    assert ".." not in taken.volume.target.parts
    assert taken.volume.target.is_relative_to(KUBELET / "pods")
