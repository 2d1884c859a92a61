"""Whatever is asked over the real socket is served or refused with the caller's code, and leaves nothing."""

import contextlib
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import grpc
import pytest
from csi_harness.nodes import NAMESPACE, publish_message
from csi_harness.rig import Rig
from gkm.hoststate.files import names_in
from gkm.hoststate.names import CacheRef
from gkm_csi.proto import csi_pb2
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testbed.waiting import until

pytestmark = pytest.mark.mounts

MINE = {"INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND", "FAILED_PRECONDITION", "ALREADY_EXISTS", "UNAVAILABLE"}
"""What a caller who is alone may be answered; INTERNAL is for what is wrong with us."""
FUZZ = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
CACHE = {"__grp__k.json": '{"child_paths": {"k.json": "/old/k.json"}}', "k.json": "{}", "deep/er/file": "x"}
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
_numbers = count()


class Scene:
    """A node with two published volumes, and places for a third."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.ref = rig.ready(CACHE)
        (self.volume, self.target), (self.private, self.writable) = rig.volume(), rig.volume()
        rig.client.publish(self.volume, self.target, {"cacheName": self.ref.name})
        rig.client.publish(self.private, self.writable, {"cacheName": self.ref.name, "readOnly": "false"})
        self.records = names_in(rig.files.layout.volumes)
        self.mounts = rig.namespace.mounts(rig.files.root)

    def place(self, kind: str) -> Path:
        """Make the place for a target; whoever makes mounts there takes them away by `cleaned`."""
        number = next(_numbers)
        target = self.rig.files.target(f"fuzz-{number}")
        match kind:
            case "there":
                target.mkdir()
            case "link":
                target.symlink_to("/etc")
            case "link on the way":
                (target.parent / "way").symlink_to(self.rig.files.root)
                return target.parent / "way" / "mount"
            case "file":
                target.touch()
            case "with files":
                target.mkdir()
                (target / "mine").touch()
            case "foreign mount":
                target.mkdir()
                assert self.rig.namespace.run("mount", "-t", "tmpfs", "foreign", target).returncode == 0
            case "no parent":
                return target.parent / "missing" / "mount"
            case "long name":
                return target.with_name("x" * 256)
        return {
            "another volume's": self.target,
            "in a read-only volume": self.target / "mount",
            "in a private volume": self.writable / "mount",
            "outside": Path("/etc/gkm-fuzz"),
            "kubelet itself": self.rig.files.kubelet,
            "relative": Path("pods/x/mount"),
        }.get(kind, target)

    def ask(self, message: csi_pb2.NodePublishVolumeRequest) -> str:
        try:
            self.rig.client.call("NodePublishVolume", message)
        except grpc.RpcError as error:
            details = str(error.details())
            assert str(self.rig.files.root) not in details.replace(str(self.rig.files.kubelet), "")
            assert "Traceback" not in details
            assert len(details) < 2000
            return str(error.code().name)
        return "OK"

    def check(self) -> None:
        """Assert that there is what there was at the beginning."""
        layout = self.rig.files.layout
        assert names_in(layout.volumes) == self.records
        assert self.rig.namespace.mounts(self.rig.files.root) == self.mounts
        assert list(layout.layers.iterdir()) == []
        assert not layout.captured.exists() or list(layout.captured.iterdir()) == []
        assert list(layout.relocated(self.rig.record(self.volume).digest).glob(".tmp-*")) == []
        assert self.rig.client.call("Probe", csi_pb2.ProbeRequest()).ready.value


@pytest.fixture(scope="module")
def scene(rig: Rig) -> Scene:
    return Scene(rig)


def unpublished(scene: Scene, volume: str, target: Path) -> None:
    def gone() -> bool:
        try:
            scene.rig.client.unpublish(volume, target)
        except grpc.RpcError as error:
            assert error.code().name == "ABORTED"
            return False
        return True

    until(gone, "the volume to go")


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
    volume, target = f"fuzz-{next(_numbers)}", scene.place("fresh")
    told = {**given_attributes, **({"cacheName": scene.ref.name} if named else {})}
    message = publish_message(volume, target, told)
    message.readonly = readonly
    answer = scene.ask(message)
    assert answer in MINE | {"OK"}
    if answer == "OK":
        unpublished(scene, volume, target)
    assert not target.exists()
    scene.check()


valid = st.fixed_dictionaries(
    {},
    optional={
        "readOnly": st.sampled_from(["true", "false"]),
        "mountPath": st.sampled_from(["/cache", "/root/.triton/cache", "/" + "x" * 1000]),
        "sizeLimit": st.sampled_from(["1Mi", "1Ti", "3000k"]),
        "ifUnavailable": st.sampled_from(["wait", "empty"]),
        "capture": st.sampled_from(["true", "false"]),
    },
)


@FUZZ
@given(more=valid, kind=st.sampled_from(PLACES), name=st.sampled_from(["", "nowhere"]))
def test_targets_of_every_kind(scene: Scene, more: Mapping[str, str], kind: str, name: str) -> None:
    volume, target = f"fuzz-{next(_numbers)}", scene.place(kind)
    try:
        answer = scene.ask(publish_message(volume, target, {"cacheName": name or scene.ref.name, **more}))
        assert answer in MINE | {"OK"}
        if answer == "OK":
            assert kind in ("fresh", "there", "in a private volume")
            unpublished(scene, volume, target)
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


@pytest.mark.parametrize("entries", [100, 4000])
def test_a_huge_map_is_refused(scene: Scene, entries: int) -> None:
    told = {f"{number:040}": "y" * 20 for number in range(entries)}
    assert scene.ask(publish_message("fuzz-map", scene.place("fresh"), told)) in (
        "INVALID_ARGUMENT",
        "RESOURCE_EXHAUSTED",
    )
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


@pytest.mark.parametrize("what", ["tmpfs", "bind", "stacked", "deep"])
@pytest.mark.parametrize("more", [{}, {"readOnly": "false"}, {"readOnly": "false", "capture": "true"}])
def test_what_a_privileged_pod_mounts_goes_with_its_volume(scene: Scene, what: str, more: dict[str, str]) -> None:
    rig, target, volume = scene.rig, scene.place("fresh"), f"fuzz-{next(_numbers)}"
    rig.client.publish(volume, target, {"cacheName": scene.ref.name, **more})
    inside = target / "deep"
    commands: dict[str, list[str | Path]] = {
        "tmpfs": ["mount", "-t", "tmpfs", "x", inside],
        "bind": ["mount", "--bind", "/etc", inside],
        "stacked": ["mount", "-t", "tmpfs", "x", target],
        "deep": ["sh", "-c", 'mount -t tmpfs x "$0" && mkdir "$0/y" && mount -t tmpfs y "$0/y"', inside],
    }
    assert rig.namespace.run(*commands[what]).returncode == 0
    unpublished(scene, volume, target)
    assert rig.nothing_left(volume, target)
    scene.check()


def kept(rig: Rig, volume: str) -> dict[str, bytes]:
    content = rig.files.layout.captured / volume / "content"
    found = {str(path.relative_to(content)): path.read_bytes() for path in content.rglob("*") if path.is_file()}
    shutil.rmtree(content.parent, ignore_errors=True)
    return found


def capturing(scene: Scene, **more: str) -> tuple[str, Path]:
    volume, target = f"fuzz-{next(_numbers)}", scene.place("fresh")
    asked = {"cacheName": scene.ref.name, "readOnly": "false", "capture": "true", **more}
    scene.rig.client.publish(volume, target, asked)
    return volume, target


def test_what_is_mounted_inside_a_volume_is_never_captured(scene: Scene) -> None:
    volume, target = capturing(scene)
    rig = scene.rig
    (rig.namespace.inside(target) / "mine").write_text("x")
    (rig.namespace.inside(target) / "file").touch()
    assert rig.namespace.run("mount", "--bind", "/etc", target / "deep").returncode == 0
    assert rig.namespace.run("mount", "--bind", "/etc/passwd", target / "file").returncode == 0
    unpublished(scene, volume, target)
    assert kept(rig, volume) == {"mine": b"x", "file": b""}
    assert rig.nothing_left(volume, target)


@pytest.mark.parametrize("trick", ["hole", "links", "holes"])
def test_what_the_pod_never_paid_for_is_never_written_to_the_disk(scene: Scene, trick: str) -> None:
    volume, target = capturing(scene, sizeLimit="1Ti")
    inside = scene.rig.namespace.inside(target)
    match trick:
        case "hole":
            with (inside / "hole").open("wb") as file:
                file.truncate(1 << 39)
        case "holes":
            for number in range(100):
                with (inside / f"hole{number}").open("wb") as file:
                    file.truncate(32 << 20)
        case _:
            (inside / "one").write_bytes(bytes(8 << 20))
            for number in range(400):
                (inside / f"link{number}").hardlink_to(inside / "one")
    unpublished(scene, volume, target)
    scene.rig.driver.wait_for("not captured")
    assert kept(scene.rig, volume) == {}
    scene.check()


def test_a_file_with_a_hole_and_one_with_two_names_are_captured(scene: Scene) -> None:
    volume, target = capturing(scene)
    inside = scene.rig.namespace.inside(target)
    (inside / "one").write_bytes(b"x" * 100_000)
    (inside / "two").hardlink_to(inside / "one")
    with (inside / "so").open("wb") as file:
        file.write(b"y" * 50_000)
        file.seek(100_000)
        file.write(b"y")
    unpublished(scene, volume, target)
    assert {name: len(data) for name, data in kept(scene.rig, volume).items()} == {
        "one": 100_000,
        "two": 100_000,
        "so": 100_001,
    }


@pytest.mark.parametrize("lost", ["layers", "run"])
def test_a_run_directory_that_is_wiped_under_the_process_is_made_again(scene: Scene, lost: str) -> None:
    rig = scene.rig
    layout = rig.files.layout
    shutil.rmtree(layout.layers)
    volume, target = f"fuzz-{next(_numbers)}", scene.place("fresh")
    asked = {"cacheName": scene.ref.name, "readOnly": "false", "mountPath": f"/wiped/{lost}"}
    rig.client.publish(volume, target, asked)
    if lost == "run":
        shutil.rmtree(layout.volumes / volume)
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    # Nobody is remembered who is not there: the next volume's usage does not name it.
    other, elsewhere = f"fuzz-{next(_numbers)}", scene.place("fresh")
    rig.client.publish(other, elsewhere, asked)
    assert volume not in layout.usage_file(scene.ref).read_text()
    rig.client.unpublish(other, elsewhere)
    scene.check()


@pytest.mark.parametrize("wrong", ["no entry", "a link in the entry"])
def test_who_does_not_want_to_wait_starts_empty_whatever_the_entry_is(scene: Scene, wrong: str) -> None:
    rig = scene.rig
    if wrong == "no entry":
        ref = CacheRef(NAMESPACE, "without-entry")
        rig.files.pointer(ref, digest=f"sha256:{7:064}")
    else:
        content = {"a/file": "linked for who does not wait"}
        ref = rig.ready(content)
        (rig.files.layout.entry(rig.files.entry(content)) / "cache" / "a" / "link").symlink_to("/etc")
    volume, target = f"fuzz-{next(_numbers)}", scene.place("fresh")
    asked = {"cacheName": ref.name, "ifUnavailable": "empty", "readOnly": "false"}
    rig.client.publish(volume, target, asked)
    assert list(rig.namespace.inside(target).iterdir()) == []
    assert rig.record(volume).digest == ""
    assert rig.record(volume).empty_because
    rig.client.publish(volume, target, asked)
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    scene.check()
