"""Pods that misuse their volumes, and damage to the driver's directories: nothing is left, nothing leaks."""

import shutil
from pathlib import Path

import pytest
from gkm.hoststate.names import CacheRef
from support.csi.nodes import NAMESPACE
from support.csi.rig import Rig
from support.csi.scene import Scene, numbers

pytestmark = pytest.mark.mounts


@pytest.mark.parametrize("what", ["tmpfs", "bind", "stacked", "deep"])
@pytest.mark.parametrize("more", [{}, {"readOnly": "false"}, {"readOnly": "false", "capture": "true"}])
def test_mounts_of_a_privileged_pod_end_with_its_volume(scene: Scene, what: str, more: dict[str, str]) -> None:
    rig, target, volume = scene.rig, scene.place("fresh"), f"fuzz-{next(numbers)}"
    rig.client.publish(volume, target, {"cacheName": scene.ref.name, **more})
    inside = target / "deep"
    commands: dict[str, list[str | Path]] = {
        "tmpfs": ["mount", "-t", "tmpfs", "x", inside],
        "bind": ["mount", "--bind", "/etc", inside],
        "stacked": ["mount", "-t", "tmpfs", "x", target],
        "deep": ["sh", "-c", 'mount -t tmpfs x "$0" && mkdir "$0/y" && mount -t tmpfs y "$0/y"', inside],
    }
    assert rig.namespace.run(*commands[what]).returncode == 0
    scene.rig.client.unpublish_as_kubelet(volume, target)
    assert rig.nothing_left(volume, target)
    assert kept(rig, volume) == {}
    scene.check()


def kept(rig: Rig, volume: str) -> dict[str, bytes]:
    content = rig.files.layout.captured / volume / "content"
    found = {str(path.relative_to(content)): path.read_bytes() for path in content.rglob("*") if path.is_file()}
    shutil.rmtree(content.parent, ignore_errors=True)
    return found


def capturing(scene: Scene, **more: str) -> tuple[str, Path]:
    volume, target = f"fuzz-{next(numbers)}", scene.place("fresh")
    asked = {"cacheName": scene.ref.name, "readOnly": "false", "capture": "true", **more}
    scene.rig.client.publish(volume, target, asked)
    return volume, target


def test_mounts_inside_a_volume_are_never_captured(scene: Scene) -> None:
    volume, target = capturing(scene)
    rig = scene.rig
    (rig.namespace.inside(target) / "mine").write_text("x")
    (rig.namespace.inside(target) / "file").touch()
    assert rig.namespace.run("mount", "--bind", "/etc", target / "deep").returncode == 0
    assert rig.namespace.run("mount", "--bind", "/etc/passwd", target / "file").returncode == 0
    scene.rig.client.unpublish_as_kubelet(volume, target)
    assert kept(rig, volume) == {"mine": b"x", "file": b""}
    assert rig.nothing_left(volume, target)


@pytest.mark.parametrize("trick", ["hole", "links", "holes"])
def test_a_capture_never_exceeds_the_memory_of_the_pod(scene: Scene, trick: str) -> None:
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
    scene.rig.client.unpublish_as_kubelet(volume, target)
    scene.rig.driver.wait_for("changed files of a volume not copied, this capture of the volume is lost")
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
    scene.rig.client.unpublish_as_kubelet(volume, target)
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
    volume, target = f"fuzz-{next(numbers)}", scene.place("fresh")
    asked = {"cacheName": scene.ref.name, "readOnly": "false", "mountPath": f"/wiped/{lost}"}
    rig.client.publish(volume, target, asked)
    if lost == "run":
        shutil.rmtree(layout.volumes / volume)
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    # Nobody is remembered who is not there: the next volume's usage does not name it.
    other, elsewhere = f"fuzz-{next(numbers)}", scene.place("fresh")
    rig.client.publish(other, elsewhere, asked)
    assert volume not in layout.usage_file(scene.ref).read_text()
    rig.client.unpublish(other, elsewhere)
    scene.check()


@pytest.mark.parametrize("wrong", ["no entry", "a link in the entry"])
def test_if_unavailable_empty_starts_empty_for_any_entry(scene: Scene, wrong: str) -> None:
    rig = scene.rig
    if wrong == "no entry":
        ref = CacheRef(NAMESPACE, "without-entry")
        rig.files.pointer(ref, digest=f"sha256:{7:064}")
    else:
        content = {"a/file": "linked for who does not wait"}
        ref = rig.ready(content)
        (rig.files.layout.entry(rig.files.entry(content)) / "cache" / "a" / "link").symlink_to("/etc")
    volume, target = f"fuzz-{next(numbers)}", scene.place("fresh")
    asked = {"cacheName": ref.name, "ifUnavailable": "empty", "readOnly": "false"}
    rig.client.publish(volume, target, asked)
    assert list(rig.namespace.inside(target).iterdir()) == []
    assert rig.record(volume).digest == ""
    assert rig.record(volume).empty_because
    rig.client.publish(volume, target, asked)
    rig.client.unpublish(volume, target)
    assert rig.nothing_left(volume, target)
    scene.check()
