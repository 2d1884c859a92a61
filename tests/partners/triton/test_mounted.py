"""Real Triton on volumes that the real gkm-csi mounts, from entries that the agent's code pulled."""

from pathlib import Path

import pytest
from support.csi.rig import Rig
from support.images.archives import cache_image
from support.registry.server import Registry
from support.triton.cache import STAGES, TritonFailed, snapshot
from support.triton.pods import ANOTHER_USER, ROOT, Pod, Stored, stored

pytestmark = pytest.mark.mounts

OTHER = 256
"""Another constant, so another kernel: one that the cache does not hold."""


@pytest.fixture
def cache(rig: Rig, registry: Registry, moved: Path) -> Stored:
    """Pull one kernel for block 128 to the node; the directory of the compilation is gone."""
    return stored(rig, registry, cache_image("triton", moved))


def test_read_only_at_a_known_path_is_a_hit_and_nothing_is_written(rig: Rig, cache: Stored) -> None:
    before = snapshot(cache.content)
    pod = Pod.start(rig, cache.ref.name)
    seen = snapshot(pod.inside)

    found = pod.compiles()

    assert found.hit
    assert found.stages == []
    assert {Path(path).parent.parent for path in found.paths} == {pod.cache}
    assert snapshot(pod.inside) == seen
    assert snapshot(cache.content) == before


def test_read_only_without_a_path_the_same_kernel_is_a_miss_and_fails(rig: Rig, cache: Stored) -> None:
    pod = Pod.start(rig, cache.ref.name, says_where=False)
    with pytest.raises(TritonFailed, match=r"OSError: \[Errno 30\] Read-only file system") as failed:
        pod.compiles()
    assert failed.value.stages == STAGES, "the entry was looked at, and the kernel was to be compiled"


def test_a_miss_on_a_read_only_mount_fails_before_anything_is_compiled(rig: Rig, cache: Stored) -> None:
    pod = Pod.start(rig, cache.ref.name)
    with pytest.raises(TritonFailed, match=r"(?s)makedirs.*OSError: \[Errno 30\] Read-only file system") as failed:
        pod.compiles(OTHER)
    assert failed.value.stages == []


@pytest.mark.parametrize(("user", "owner"), [(ROOT, 0), (ANOTHER_USER, 65534)], ids=["root", "another"])
def test_on_a_private_volume_a_hit_writes_nothing_and_a_miss_is_compiled_into_its_layer(
    rig: Rig, cache: Stored, user: tuple[str, ...], owner: int
) -> None:
    before = snapshot(cache.content)
    pod = Pod.start(rig, cache.ref.name, readOnly="false")
    seen, used = snapshot(pod.inside), pod.used()

    assert pod.compiles(user=user).hit
    assert snapshot(pod.inside) == seen
    assert pod.used() == used

    missed = pod.compiles(OTHER, user)
    assert not missed.hit
    assert missed.stages == STAGES
    again = pod.compiles(OTHER, user)
    assert again.hit
    assert again.binary == missed.binary
    assert pod.compiles(user=user).hit
    (new,) = {name.partition("/")[0] for name in snapshot(pod.inside).keys() - seen.keys()}
    assert {Path(path).parent for path in again.paths} == {pod.cache / new}
    assert (pod.inside / new).stat().st_uid == owner
    assert pod.used()["BYTES"] > used["BYTES"]
    assert snapshot(cache.content) == before


@pytest.mark.parametrize("read_only", ["true", "false"])
def test_every_user_may_read_a_whole_volume(rig: Rig, cache: Stored, read_only: str) -> None:
    pod = Pod.start(rig, cache.ref.name, readOnly=read_only)
    assert pod.run_as_another("find . -type f -exec cat {} + > /dev/null") == ""


def test_on_a_private_volume_without_a_path_every_kernel_is_compiled_anew(rig: Rig, cache: Stored) -> None:
    before = snapshot(cache.content)
    pod = Pod.start(rig, cache.ref.name, says_where=False, readOnly="false")
    names = snapshot(pod.inside).keys()

    first = pod.compiles()

    assert not first.hit
    assert first.stages == STAGES
    assert snapshot(pod.inside).keys() == names, "the same key, compiled again"
    assert pod.compiles().hit
    assert snapshot(cache.content) == before
