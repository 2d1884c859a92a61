"""Generated caches of TorchInductor in torch's layout; graphs contain the bytes that surround a mark in real ones."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from support.images.vllm import CONFIG, properties, put

GRAPH = "fqhdaazhbxfu6rrpfwsmzzr5clf5ochth3htf6vsldyiqwyjlt3a"
AUTOGRAD = "azh3fx54pdpsa5wd3hnqsnfqjizw32kqta3shovfgn7jaekh5c2f"
CODE = "cpspxizsfrh4t3ryf2xsciz7gbgxthxwmtzcvausjnszxf2zxdqa"
KERNEL = "3JQ2KFWAGNLOLKFTB5G5YXEEIVVZ2ISTUH7CM2BRVYZ6TZRDK5EQ"


def system(triton: str = "c72a", cuda: str | None = "13.2") -> bytes:
    """Return the line in which a graph states the versions that its key contains."""
    version = {"triton": triton, **({"cuda": cuda} if cuda else {})}
    return f"\x8c[ab12] system_info[version]: {version}\x94".encode()


def graph(arch: str = "90", cuda: str | None = "13.2") -> bytes:
    """Return the pickle of a graph for a GPU of NVIDIA."""
    code = b"\x80\x04\x8c\x1btorch._inductor.output_code\x94\x8c\x0fCompiledFxGraph\x94"
    return code + CONFIG + system(cuda=cuda) + properties(arch)


def directory(
    root: Path, pickle: bytes | None = None, arch: int = 90, *, triton: str = "3.9.0", mount: str = "/root/cache"
) -> Path:
    """Write the cache of one graph with one kernel, which names the path `mount`."""
    data = graph(str(arch)) if pickle is None else pickle
    put(root, f"fxgraph/{GRAPH[1:3]}/{GRAPH}/nimkv2e4qhbffpwqfzeqgkb6vdb3w4xt", data)
    put(root, f"aotautograd/{AUTOGRAD}/jbofnkchfxbglc7pggidvqwor222ta36", data)
    put(root, f"{CODE[1:3]}/{CODE}.py", b"import triton\n" + (properties(str(arch)) if pickle is None else b""))
    put(root, f"locks/{CODE}.lock", b"")
    metadata = {
        "hash": "ab" * 32,
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32},
        "num_warps": 4,
        "triton_version": triton,
    }
    kernel = f"triton/0/{KERNEL}"
    children = {name: f"{mount}/{kernel}/{name}" for name in ("add.json", "add.ptx", "add.cubin")}
    put(root, f"{kernel}/add.json", json.dumps(metadata).encode())
    put(root, f"{kernel}/add.ptx", f".version 8.7\n.target sm_{arch}\n".encode())
    put(root, f"{kernel}/add.cubin", b"\x7fELF")
    return put(root, f"{kernel}/__grp__add.json", json.dumps({"child_paths": children}).encode())


def compiled(root: Path, took: str, *, pickle: bytes = b"", mount: str = "/cache") -> Path:
    """Write the cache as a process of torch does that took this long: no other one has a graph of the same name."""
    directory(root, graph() + took.encode() + pickle, mount=mount)
    for written in (*root.glob("fxgraph/*/*/*"), *root.glob("aotautograd/*/*")):
        written.rename(written.with_name(hashlib.sha256(written.read_bytes()).hexdigest()))
    return root


def artifact_file(groups: Mapping[str, Iterable[tuple[str, bytes]]], version: int = 1) -> bytes:
    """Return a file as `torch.compiler.save_cache_artifacts()` frames it."""
    body = bytearray(version.to_bytes(8))
    for kind, artifacts in groups.items():
        listed = list(artifacts)
        body += _text(kind) + len(listed).to_bytes(8)
        for key, content in listed:
            body += _text(key) + len(content).to_bytes(8) + content
    return zlib.crc32(body).to_bytes(4) + bytes(body)


def _text(text: str) -> bytes:
    encoded = base64.b64encode(text.encode())
    return len(encoded).to_bytes(8) + encoded
