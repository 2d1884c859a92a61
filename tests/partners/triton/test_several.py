"""Real Triton beside a vLLM cache in one volume: each has a directory, from one image, and both are captured as one."""

from pathlib import Path

import pytest
from gkm.gpus.values import Gpu
from gkm.images.assembly.image import pack
from gkm.images.assembly.several import scan_caches
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from gkm.runtimes.placement import beside, environment
from support.agent.capturing import CaptureNode, write_key
from support.csi.rig import Rig
from support.images.directories import RANK, component
from support.registry.server import Registry
from support.triton.cache import Compiled, compiled, snapshot
from support.triton.pods import Pod, pulled, stored

pytestmark = pytest.mark.mounts
INDEX = f"{RANK}/backbone/vllm_compile_cache.py"


def compiles(pod: Pod, directory: str) -> Compiled:
    return compiled(Path(directory), within=pod.rig.namespace.command(()))


def test_each_runtime_hits_in_its_directory_of_a_read_only_volume(
    rig: Rig, registry: Registry, moved: Path, tmp_path: Path
) -> None:
    versions = DependencyVersions()
    component(tmp_path / "vllm")
    work = tmp_path / "work"
    work.mkdir()
    scanned = scan_caches([tmp_path / "vllm", moved], (), versions)
    cache = stored(rig, registry, pack(scanned.caches, "several", work, versions=versions))
    pod = Pod.start(rig, cache.ref.name)
    variables = environment(["vllm", "triton"], str(pod.cache))
    before = snapshot(pod.inside)

    found = compiles(pod, variables["TRITON_CACHE_DIR"])

    assert (found.hit, found.stages) == (True, [])
    assert {Path(path).parent.parent for path in found.paths} == {pod.cache / "triton"}
    index = (pod.inside / "vllm" / INDEX).read_text()
    assert f"{variables['VLLM_CACHE_ROOT']}/{RANK}/backbone/artifact_" in index
    assert snapshot(pod.inside) == before


def test_what_compiles_beside_vllm_is_captured_and_hits_in_the_next_pod(
    rig: Rig, registry: Registry, filled: Path, tmp_path: Path
) -> None:
    assert filled.exists(), "Triton is here"
    pod = Pod.start(rig, "not-there-yet", ifUnavailable="empty", capture="true")
    before = compiles(pod, beside(["vllm"], str(pod.cache))["TRITON_CACHE_DIR"])
    assert not before.hit
    component(pod.inside)
    pod.end()
    gpu = Gpu(0, "cuda", driver_version="580.65.06", arch="90", warp_size=32)
    node = CaptureNode(tmp_path, registry.host, (gpu,), place=rig.files.layout)
    write_key(node.key_file)
    report = node.announced(pod.volume)
    assert report.runtime == "vllm-triton"

    again = pulled(rig, Client(node.config.registries), Reference.parse(report.image))
    other = Pod.start(rig, again.ref.name, readOnly="false")
    used = other.used()
    found = compiles(other, environment(["vllm", "triton"], str(other.cache))["TRITON_CACHE_DIR"])
    assert (found.hit, found.stages, found.binary) == (True, [], before.binary)
    assert other.used() == used
