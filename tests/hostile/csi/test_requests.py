"""Any request over the real socket succeeds or fails with the caller's code, and leaves nothing."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from gkm_csi.proto import csi_pb2
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.csi.nodes import publish_message
from support.csi.scene import Scene, numbers
from support.examples import examples

pytestmark = pytest.mark.mounts

MINE = {"INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION", "ALREADY_EXISTS", "UNAVAILABLE"}
"""What a caller who is alone may be answered; INTERNAL is for what is wrong with us."""
FUZZ = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
ODD = [
    "",
    "true",
    "false",
    "True",
    "\0",
    "\n",
    "../..",
    "/",
    "//x",
    "/a/b",
    "x" * 300,
    "é",
    "1Mi",
    "1Gi",
    "-1",
    "9" * 30,
]
KEYS = [
    *("cacheName", "cacheNamespace", "clusterCacheName", "csi.gkm.io/GKMCache", "csi.gkm.io/namespace"),
    *("readOnly", "mountPath", "sizeLimit", "ifUnavailable", "capture", "CACHENAME", "", "csi.storage.k8s.io/x"),
]
PLACES = [
    *("fresh", "there", "link", "link on the way", "file", "with files", "foreign mount", "no parent", "long name"),
    *("another volume's", "in a read-only volume", "in a private volume", "outside", "kubelet itself", "relative"),
]


attributes = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=10)),
    st.one_of(st.sampled_from(ODD), st.text(max_size=20)),
    max_size=5,
)


@FUZZ
@given(given_attributes=attributes, named=st.booleans(), readonly=st.booleans())
def test_attributes_of_every_kind(
    scene: Scene, given_attributes: Mapping[str, str], *, named: bool, readonly: bool
) -> None:
    volume, target = f"fuzz-{next(numbers)}", scene.place("fresh")
    told = {**given_attributes, **({"cacheName": scene.ref.name} if named else {})}
    message = publish_message(volume, target, told)
    message.readonly = readonly
    answer = scene.ask(message)
    assert answer in MINE | {"OK"}
    if answer == "OK":
        scene.rig.client.unpublish_as_kubelet(volume, target)
    assert not target.exists()
    scene.check()


valid = st.fixed_dictionaries(
    {},
    optional={
        "readOnly": st.sampled_from(["true", "false"]),
        "mountPath": st.sampled_from(["/cache", "/root/.triton/cache", "/" + "x" * 1000]),
        "sizeLimit": st.sampled_from(["1Mi", "1Ti", "3000k"]),
        "ifUnavailable": st.sampled_from(["wait", "empty", "compile"]),
        "capture": st.sampled_from(["true", "false"]),
    },
)


@FUZZ
@given(more=valid, kind=st.sampled_from(PLACES), name=st.sampled_from(["", "nowhere"]))
def test_targets_of_every_kind(scene: Scene, more: Mapping[str, str], kind: str, name: str) -> None:
    volume, target = f"fuzz-{next(numbers)}", scene.place(kind)
    try:
        answer = scene.ask(publish_message(volume, target, {"cacheName": name or scene.ref.name, **more}))
        assert answer in MINE | {"OK"}
        if answer == "OK":
            assert kind in ("fresh", "there", "in a private volume")
            scene.rig.client.unpublish_as_kubelet(volume, target)
        # What is unpublished although it never was is no error, wherever kubelet says that it is.
        with contextlib.suppress(grpc.RpcError):
            scene.rig.client.unpublish(volume, target)
    finally:
        if kind == "foreign mount":
            scene.rig.namespace.run("umount", target)
    assert (kind != "with files") or (target / "mine").exists()
    scene.check()


@FUZZ
@given(
    volume=st.text(max_size=140),
    path=st.one_of(st.text(max_size=60), st.text(max_size=60).map(lambda text: f"KUBELET/pods/{text}")),
    call=st.sampled_from(["publish", "unpublish", "stats"]),
)
def test_ids_and_paths_of_every_kind(scene: Scene, volume: str, path: str, call: str) -> None:
    target = path.replace("KUBELET", str(scene.rig.files.kubelet))
    code = "OK"
    try:
        match call:
            case "publish":
                message = publish_message(volume, Path("/"), {"cacheName": scene.ref.name})
                message.target_path = target
                code = scene.ask(message)
            case "unpublish":
                unpublish = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=target)
                scene.rig.client.call("NodeUnpublishVolume", unpublish)
            case _:
                stats = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=target)
                scene.rig.client.call("NodeGetVolumeStats", stats)
    except grpc.RpcError as error:
        code = error.code().name
    if code == "OK" and call == "publish":
        scene.rig.client.unpublish(volume, Path(target))
    assert code in MINE | {"OK"}
    scene.check()


@FUZZ
@given(
    data=st.binary(max_size=200),
    method=st.sampled_from(["NodePublishVolume", "NodeUnpublishVolume", "NodeGetVolumeStats"]),
    cut=st.integers(0, 400),
)
def test_bytes_of_every_kind(scene: Scene, data: bytes, method: str, cut: int) -> None:
    whole = publish_message("fuzz-bytes", scene.place("fresh"), {"cacheName": scene.ref.name}).SerializeToString()
    body = whole[:cut] + data
    try:
        kind = getattr(csi_pb2, f"{method}Request")
        message = kind.FromString(body)
    except DecodeError:
        assert scene.rig.client.raw_refused(f"/csi.v1.Node/{method}", body) == "INVALID_ARGUMENT"
        scene.check()
        return
    try:
        scene.rig.client.call(method, message)
    except grpc.RpcError as error:
        assert error.code().name in MINE
    else:
        if method == "NodePublishVolume":
            scene.rig.client.unpublish(message.volume_id, Path(message.target_path))
    scene.check()


@pytest.mark.parametrize(
    ("entries", "refusal", "why"),
    [(100, "INVALID_ARGUMENT", "volume_context holds"), (4000, "RESOURCE_EXHAUSTED", "larger than max")],
)
def test_a_huge_map_is_refused(scene: Scene, entries: int, refusal: str, why: str) -> None:
    told = {f"{number:040}": "y" * 20 for number in range(entries)}
    message = publish_message("fuzz-map", scene.place("fresh"), told)
    code, text = scene.rig.client.refused("NodePublishVolume", message)
    assert (code, why in text) == (refusal, True), text
    scene.check()


def test_calls_in_any_order_and_number_end_in_nothing(scene: Scene) -> None:
    target = scene.place("fresh")
    asked = publish_message("fuzz-order", target, {"cacheName": scene.ref.name, "readOnly": "false"})
    for step in "upuuppsupsu":
        match step:
            case "p":
                assert scene.ask(asked) == "OK"
            case "u":
                scene.rig.client.unpublish("fuzz-order", target)
            case _:
                stats = csi_pb2.NodeGetVolumeStatsRequest(volume_id="fuzz-order", volume_path=str(target))
                with contextlib.suppress(grpc.RpcError):
                    scene.rig.client.call("NodeGetVolumeStats", stats)
    scene.check()
