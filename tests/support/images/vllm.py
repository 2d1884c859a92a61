"""Generated vLLM caches in vLLM's layouts; the artifacts contain the bytes that surround a mark in real ones."""

import json
from collections.abc import Mapping
from pathlib import Path

HASH, OTHER_HASH = "0a1b2c3d4e", "ffeeddccbb"
ARTIFACT = "artifact_compile_range_1_2048_subgraph_"
# Every artifact of torch, CUDA's too, lists the processors that ROCm's composable kernels support.
CONFIG = b"\x94\x8c}[gzct] inductor_config[rocm.ck_supported_arch]: ['gfx90a', 'gfx942', 'gfx950']\x94\x8cb[klfq]"


def put(root: Path, path: str, data: bytes = b"x") -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)
    return root


def ptx(arch: str) -> bytes:
    """Return a kernel's PTX in a pickle."""
    return b"\x94\x8c\x0btriton_.ptx\x94B\xb3o\0\0//\n.version 8.7\n.target sm_%s\n.address_size 64\n" % arch.encode()


def properties(cc: str, kind: str = "cuda") -> bytes:
    """Return the properties of the device for which inductor compiled."""
    return f"'device': DeviceProperties(type='{kind}', index=0, multi_processor_count=40, cc={cc}, major=7)".encode()


def code_object(processor: str) -> bytes:
    """Return the msgpack note in AMD's code object."""
    return b"\xaeamdhsa.target\xd9\x21amdgcn-amd-amdhsa--%s:sramecc+:xnack-\xaeamdhsa.version\x92" % processor.encode()


def binary(
    root: Path, *artifacts: bytes, env: Mapping[str, object] | None = None, hashed: str = HASH, rank: str = "rank_0_0"
) -> Path:
    """The binary format, as vLLM saves it."""
    prefix = f"torch_compile_cache/{hashed}/{rank}/backbone"
    factors = {
        "code_hash": "c0de",
        "compiler_hash": "c03b",
        "config_hash": "c0f1",
        "env": {"VLLM_TARGET_DEVICE": "cuda", **(env or {})},
    }
    put(root, f"{prefix}/cache_key_factors.json", json.dumps(factors, indent=2).encode())
    put(root, f"{prefix}/vllm_compile_cache.py", b"{}")
    put(root, f"{prefix}/computation_graph.py")
    for number, artifact in enumerate(artifacts or (b"12345",)):
        put(root, f"{prefix}/{ARTIFACT}{number}", artifact)
    return root


def mega(root: Path, model: bytes = b"model", hashed: str = HASH) -> Path:
    """Write the one file of a model that was compiled ahead of time."""
    return put(root, f"torch_compile_cache/torch_aot_compile/{hashed}/rank_0_0/model", model)
