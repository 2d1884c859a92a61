"""What a server in vLLM's layout compiles into a volume becomes an image of vLLM, and the next server reads it.

vLLM does not run here (its wheels are gigabytes): the layout is that of its sources, with artifacts in the format
`unpacked`, and real Triton compiles the kernels in them, in the private layer of a volume of the real gkm-csi.
"""

import ast
import json
from pathlib import Path

import pytest
from gkm.gpus.values import Gpu
from gkm.images.reference import Reference
from gkm.images.registries.registry import Registry as Client
from support.agent.capturing import CaptureNode, write_key
from support.cli.command import gkm
from support.csi.rig import Rig
from support.images.vllm import ARTIFACT, HASH, put
from support.registry.server import Registry
from support.triton.cache import Compiled, compiled
from support.triton.pods import Pod, pulled

pytestmark = pytest.mark.mounts

GRAPHS = f"torch_compile_cache/{HASH}/rank_0_0/backbone"
KERNELS = f"{GRAPHS}/{ARTIFACT}0/triton/0"
INDEX = f"{GRAPHS}/vllm_compile_cache.py"
SECRET = "sk-of-a-pod"


def serves(pod: Pod) -> Compiled:
    """Do what vLLM does at its start: compile the graph, or find it; $VLLM_CACHE_ROOT is the volume."""
    return compiled(pod.cache / KERNELS, within=pod.rig.namespace.command(()))


def saves(pod: Pod) -> None:
    """Write what vLLM writes after it compiled, and what it writes besides."""
    factors = {
        "code_hash": "c0de",
        "compiler_hash": "c03b",
        "config_hash": "c0f1",
        "env": {"VLLM_TARGET_DEVICE": "cuda", "VLLM_API_KEY": SECRET},
    }
    graph = (f"{ARTIFACT}0", f"{pod.cache}/{GRAPHS}/{ARTIFACT}0")
    put(pod.inside, f"{GRAPHS}/cache_key_factors.json", json.dumps(factors).encode())
    put(pod.inside, INDEX, repr({((1, 2048), 0, "inductor_standalone"): graph}).encode())
    put(pod.inside, f"{GRAPHS}/computation_graph.py", b"pass\n")
    put(pod.inside, "modelinfos/Qwen3.json", b"{}")
    put(pod.inside, "gpu_p2p_access_cache_for_0.json", b"{}")


def test_what_a_vllm_server_compiles_is_captured_as_vllm_and_found_by_the_next_one_at_another_path(
    rig: Rig, registry: Registry, filled: Path, tmp_path: Path
) -> None:
    assert filled.exists(), "Triton is here"
    pod = Pod.start(rig, "not-there-yet", ifUnavailable="empty", capture="true")
    before = serves(pod)
    assert not before.hit
    saves(pod)
    pod.end()
    gpu = Gpu(0, "cuda", driver_version="580.65.06", arch="90", warp_size=32)
    node = CaptureNode(tmp_path, registry.host, (gpu,), place=rig.files.layout)
    key = write_key(node.key_file)

    report = node.announced(pod.volume)

    assert (report.runtime, report.arch, report.name.rpartition("-")[0]) == ("vllm", "sm_90", "not-there-yet-sm90")
    (tmp_path / "key.pub").write_bytes(key.public.pem)
    verified = gkm("cache", "verify", report.image, "--key", tmp_path / "key.pub", "--plain-http")
    assert verified.returncode == 0, verified.stderr
    shown = gkm("cache", "inspect", report.image, "--plain-http", "-o", "json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["format"] == "vllm"

    again = pulled(rig, Client(node.config.registries), Reference.parse(report.image))
    files = {
        str(path.relative_to(again.content)): path.read_bytes() for path in again.content.rglob("*") if path.is_file()
    }
    assert {name.partition("/")[0] for name in files} == {"torch_compile_cache"}
    assert not any(SECRET.encode() in data for data in files.values())
    other = Pod.start(rig, again.ref.name, readOnly="false")
    ((artifact, path),) = ast.literal_eval((other.inside / INDEX).read_text()).values()
    assert (artifact, path) == (f"{ARTIFACT}0", f"{other.cache}/{GRAPHS}/{ARTIFACT}0")
    assert other.cache != pod.cache
    found = serves(other)
    assert (found.hit, found.stages, found.binary) == (True, [], before.binary)
    assert {Path(each).parent.parent for each in found.paths} == {other.cache / KERNELS}
