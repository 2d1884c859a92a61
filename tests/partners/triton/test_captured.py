"""The files that Triton compiles into a volume become an image again, and that image is a hit for other pods."""

import json
import shutil
from pathlib import Path

import pytest
from gkm.gpus.values import Gpu
from gkm.images.archives.oci_layout import open_layout
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from support.agent.capturing import CaptureNode, write_key
from support.cli.command import gkm
from support.csi.rig import Rig
from support.images.archives import cache_image
from support.registry.server import Registry
from support.triton.cache import TritonFailed, snapshot
from support.triton.pods import Pod, Stored, pulled, stored

pytestmark = pytest.mark.mounts

FIRST, OTHER = 128, 256


def packed_again(rig: Rig, registry: Registry, captured: Path, place: Path) -> Stored:
    """Build an image of the captured files with `gkm cache build`, then remove the directory."""
    done = gkm("cache", "build", captured, "--image", "registry.example/team/again:1", "--to", f"oci:{place}")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(captured)
    return stored(rig, registry, open_layout(place))


def test_an_empty_volume_is_filled_captured_packed_and_elsewhere_a_hit(
    rig: Rig, registry: Registry, filled: Path, tmp_path: Path
) -> None:
    assert filled.exists(), "Triton is here"
    pod = Pod.start(rig, "not-there-yet", ifUnavailable="empty", capture="true")
    compiled = {block: pod.compiles(block) for block in (FIRST, OTHER)}
    assert not any(found.hit for found in compiled.values())
    assert all(pod.compiles(block).hit for block in compiled)
    left = {name: content for name, (_, content) in snapshot(pod.inside).items()}

    captured = pod.end()

    assert {name: content for name, (_, content) in snapshot(captured).items()} == left
    again = packed_again(rig, registry, captured, tmp_path / "again")
    other = Pod.start(rig, again.ref.name)
    for block, before in compiled.items():
        found = other.compiles(block)
        assert found.hit
        assert found.binary == before.binary
        assert {Path(path).parent.parent for path in found.paths} == {other.cache}


def test_the_files_that_a_pod_adds_to_a_cache_become_an_image(
    rig: Rig, registry: Registry, moved: Path, tmp_path: Path
) -> None:
    cache = stored(rig, registry, cache_image("triton", moved))
    pod = Pod.start(rig, cache.ref.name, readOnly="false", capture="true")
    assert pod.compiles(FIRST).hit
    assert not pod.compiles(OTHER).hit

    captured = pod.end()

    assert len(list(captured.glob("*/__grp__add.json"))) == 1
    again = packed_again(rig, registry, captured, tmp_path / "again")
    other = Pod.start(rig, again.ref.name)
    assert other.compiles(OTHER).hit
    with pytest.raises(TritonFailed, match="Read-only file system"):
        other.compiles(FIRST)


def test_a_pod_that_only_hits_leaves_nothing_to_be_packed(rig: Rig, registry: Registry, moved: Path) -> None:
    cache = stored(rig, registry, cache_image("triton", moved))
    pod = Pod.start(rig, cache.ref.name, readOnly="false", capture="true")
    assert pod.compiles(FIRST).hit
    assert not pod.end().exists()


def test_the_agent_makes_an_image_of_what_a_pod_compiled_and_it_is_a_hit_for_the_next_pod(
    rig: Rig, registry: Registry, filled: Path, tmp_path: Path
) -> None:
    assert filled.exists(), "Triton is here"
    pod = Pod.start(rig, "not-there-yet", ifUnavailable="empty", capture="true")
    before = pod.compiles(FIRST)
    assert not before.hit
    captured = pod.end()
    (content,) = captured.glob("*/add*.json")
    target = json.loads(content.read_bytes())["target"]
    gpu = Gpu(0, target["backend"], driver_version="580.65.06", arch=str(target["arch"]), warp_size=target["warp_size"])
    node = CaptureNode(tmp_path, registry.host, (gpu,), place=rig.files.layout)
    write_key(node.key_file)

    # The node has captures of other pods, whose files are gone.
    report = node.announced(pod.volume)

    assert (report.runtime, report.pod) == ("triton", "trainer-0")
    again = pulled(rig, Client(node.config.registries), Reference.parse(report.image))
    other = Pod.start(rig, again.ref.name)
    found = other.compiles(FIRST)
    assert found.hit
    assert found.binary == before.binary
    assert {Path(path).parent.parent for path in found.paths} == {other.cache}
