"""The caches from which MCV built images, generated again from the project's kernels (tests/data/mcv/README.md).

`python tests/support/images/mcv_built.py DIR` writes them, to build the images again.
"""

import json
import lzma
import pickle
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from support.images.archives import DATA
from support.images.vllm import ARTIFACT, CONFIG, HASH, put

KERNELS = DATA / "triton" / "triton-3.9-caches.tar.xz"
IMAGES = DATA / "mcv" / "mcv-built.tar.xz"
FACTORS = {
    "code_hash": "c0de",
    "compiler_hash": "c03b",
    "config_hash": "c0f1",
    "env": {
        "VLLM_TARGET_DEVICE": "cuda",
        "VLLM_MAIN_CUDA_VERSION": "12.9",
        "VLLM_API_KEY": None,
        "VLLM_PORT": 8000,
        "VLLM_RATIO": 0.25,
        "VLLM_LIST": [1, "a<b", True],
    },
}

DATA_FILTER = getattr(tarfile, "data_filter", None)
"""Python 3.11.2 of Debian 12 has no filters: no argument `filter`, and it ignores the attribute of an archive."""


def _kernels(root: Path, arch: str) -> Path:
    """Return real directories of Triton 3.9: those of the add kernel for one architecture."""
    with tempfile.TemporaryDirectory() as work, tarfile.open(KERNELS, "r:xz") as archive:
        archive.extraction_filter = DATA_FILTER
        archive.extractall(work)  # noqa: S202 -- ours, and filtered
        for stated in sorted(Path(work).rglob("add_kernel.json")):
            if str(json.loads(stated.read_bytes())["target"]["arch"]) == arch:
                shutil.copytree(stated.parent, root / stated.parent.name)
    assert any(root.iterdir()), arch
    return root


def triton_cuda(root: Path) -> Path:
    return _kernels(root, "75")


def triton_rocm(root: Path) -> Path:
    return _kernels(root, "gfx90a")


def vllm_triton(root: Path) -> Path:
    rank = f"torch_compile_cache/{HASH}/rank_0_0"
    put(root, f"{rank}/inductor_cache/aa/graph.py", b"import torch\n")
    put(root, f"{rank}/transformed_code.py", b"pass\n")
    _kernels(root / rank / "triton_cache", "90")
    return root


def vllm_binary(root: Path) -> Path:
    """Write artifacts with real PTX of sm_90 in a pickle, as torch writes it."""
    prefix = f"torch_compile_cache/{HASH}/rank_0_0/backbone"
    put(root, f"{prefix}/cache_key_factors.json", json.dumps(FACTORS, indent=2).encode())
    put(root, f"{prefix}/vllm_compile_cache.py", b"{}")
    put(root, f"{prefix}/computation_graph.py", b"pass\n")
    with tempfile.TemporaryDirectory() as work:
        (ptx,) = _kernels(Path(work), "90").rglob("add_kernel.ptx")
        for number in range(2):
            bundle = {"number": number, "triton_.ptx": ptx.read_bytes(), "config": CONFIG}
            put(root, f"{prefix}/{ARTIFACT}{number}", pickle.dumps(bundle, protocol=5))
    return root


CACHES: dict[str, Callable[[Path], Path]] = {
    "triton-cuda": triton_cuda,
    "triton-rocm": triton_rocm,
    "vllm-triton": vllm_triton,
    "vllm-binary": vllm_binary,
}


def archive(name: str, directory: Path) -> Path:
    """Return the docker-archive that buildah wrote from MCV's image of one of the caches."""
    with lzma.open(IMAGES) as plain, tarfile.open(fileobj=plain, mode="r:") as images:
        images.extraction_filter = DATA_FILTER
        images.extract(f"{name}.docker-archive.tar", directory)
    return directory / f"{name}.docker-archive.tar"


if __name__ == "__main__":
    for called, make in CACHES.items():
        (Path(sys.argv[1]) / called).mkdir()
        make(Path(sys.argv[1]) / called)
