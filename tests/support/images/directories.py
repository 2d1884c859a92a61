"""Directories as runtimes leave them, after reports of users; contents are dummies with the marks that GKM reads."""

import json
from pathlib import Path

from support.images.vllm import put

KEY, OTHER_KEY = "A" * 52, "B" * 52
GRAPH = "f" + "a" * 51
RANK = "torch_compile_cache/d404ab212a/rank_0_0"
MARK = b"DeviceProperties(type='cuda', cc=90, major=9)"


def kernel(root: Path, directory: str = "", key: str = KEY, name: str = "fwd") -> Path:
    """Write a kernel of Triton for sm_90 with its group file."""
    where = f"{directory}/{key}" if directory else key
    metadata = {
        "hash": "ab" * 32,
        "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
        "num_warps": 4,
        "triton_version": "3.9.0",
    }
    put(root, f"{where}/{name}.json", json.dumps(metadata).encode())
    put(root, f"{where}/{name}.cubin", b"\x7fELF" + bytes(60))
    children = {f"{name}.{suffix}": f"/build/{where}/{name}.{suffix}" for suffix in ("json", "cubin")}
    return put(root, f"{where}/__grp__{name}.json", json.dumps({"child_paths": children}).encode())


def graphs(root: Path, directory: str) -> Path:
    """Write a graph of TorchInductor for sm_90, and its autograd entry."""
    put(root, f"{directory}/fxgraph/aa/{GRAPH}/x", MARK)
    return put(root, f"{directory}/aotautograd/{'a' * 52}/x", MARK)


def component(root: Path, rank: str = RANK, *, factors: bool = True, artifact: str = "compile_range_1_8192") -> Path:
    """Write one compiled component of a model of vLLM."""
    if factors:
        env = {"VLLM_TARGET_DEVICE": "cuda", "VLLM_MAIN_CUDA_VERSION": "13.0"}
        put(root, f"{rank}/backbone/cache_key_factors.json", json.dumps({"env": env, "code_hash": "1a"}).encode())
    name = f"artifact_{artifact}_subgraph_0"
    index = {(None, 0, "inductor_standalone"): (name, f"/root/.cache/vllm/{rank}/backbone/{name}")}
    put(root, f"{rank}/backbone/{name}", MARK)
    return put(root, f"{rank}/backbone/vllm_compile_cache.py", repr(index).encode())
