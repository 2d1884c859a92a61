"""Kernels that real Triton compiles beside a mounted cache have the reason why the cache did not have them."""

from pathlib import Path

import pytest
from gkm.hoststate import kernel_misses
from gkm.hoststate.kernel_misses import KernelMissCounts
from gkm.runtimes.keys import MissReason
from support.csi.rig import Rig
from support.host.waiting import until
from support.images.archives import cache_image
from support.registry.server import Registry
from support.triton.pods import Pod, stored

pytestmark = pytest.mark.mounts

FIRST, OTHER = 128, 256


def reported(rig: Rig, pod: Pod) -> kernel_misses.RuntimeMisses | None:
    """Measure the volume as kubelet does, and return what the driver reports of it."""
    pod.used()
    return kernel_misses.load(rig.files.layout).get(pod.volume)


def test_a_hit_is_no_miss_and_another_constant_is_one(rig: Rig, registry: Registry, moved: Path) -> None:
    pod = Pod.start(rig, stored(rig, registry, cache_image("triton", moved)).ref.name, readOnly="false")
    assert pod.compiles(FIRST).hit
    assert reported(rig, pod) is None
    assert not pod.compiles(OTHER).hit
    expected = KernelMissCounts({MissReason.OTHER_SOURCE: 1}, 1)
    until(lambda: reported(rig, pod) == {"triton": expected}, "the miss to be reported")
    pod.end()


def test_a_kernel_that_the_cache_has_at_another_path_is_told_apart(rig: Rig, registry: Registry, moved: Path) -> None:
    cache = stored(rig, registry, cache_image("triton", moved))
    pod = Pod.start(rig, cache.ref.name, says_where=False, readOnly="false")
    assert not pod.compiles(FIRST).hit
    expected = KernelMissCounts({MissReason.OTHER_PATH: 1}, 1)
    until(lambda: reported(rig, pod) == {"triton": expected}, "the miss to be reported")
    pod.end()
