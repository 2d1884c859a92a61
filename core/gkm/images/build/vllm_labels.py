"""The labels of a vLLM cache, and for which GPUs it is.

Names and values: prior-art/gkm-02-mcv-image-format.md, "Config labels" (documented, not proven: see gkm.images.build.
vllm). In one point MCV is not followed. It labels a binary cache with GPU 0 of the machine that builds the image, and
without a GPU with a default: sm_75 or gfx908. Such a label may lie, and nodes go by it. Here the kernels inside say it;
then the variable that MCV reads; then the one kind of GPU of this machine; and else no image is made.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gkm.api.errors import GKMError, Reason
from gkm.images.build.go_json import marshal
from gkm.images.build.versions import Versions
from gkm.images.build.vllm import AOT, ROOT, Factors, Seen
from gkm.images.cache import Format, Target, can_be

MOUNT_PREFIX = "io.kserve.km"
CACHE_ROOT = "VLLM_CACHE_ROOT=/home/kserve/.cache/vllm"
_FORMATS = ("aot_compile", "binary", "triton")
_WARP_SIZES = {"cuda": 32, "hip": 64}


def labels_of(
    seen: Seen, kernels: Iterable[Target], here: Sequence[Target], size_bytes: int, versions: Versions
) -> dict[str, str]:
    """Return the labels; `kernels` are the targets of all kernels inside, `here` the GPUs of this machine.

    Raises:
        GKMError: METADATA_MISSING when nobody knows which GPU it is for.
    """
    entries = seen.entries
    present = {entry["cacheFormat"] for entry in entries}
    hashes = list(dict.fromkeys(entry["vllmHash"] for entry in entries))
    kind = Format.VLLM
    return {
        kind.count_label: str(seen.count),
        kind.size_label: str(size_bytes),
        kind.summary_label: marshal({"targets": _targets(seen, set(kernels), here, versions)}),
        f"cache.{kind.value}.image/format": ",".join(name for name in _FORMATS if name in present),
        f"{MOUNT_PREFIX}/framework": "vllm",
        f"{MOUNT_PREFIX}/cache-type": "torch-compile",
        f"{MOUNT_PREFIX}/cache-hash": ",".join(hashes),
        f"{MOUNT_PREFIX}/cache-mount-subpath": f"{ROOT}/{AOT}" if hashes[0] in seen.bundles else ROOT,
        f"{MOUNT_PREFIX}/cache-root-env": CACHE_ROOT,
    }


def _targets(seen: Seen, kernels: set[Target], here: Sequence[Target], versions: Versions) -> list[dict[str, Any]]:
    stated = [prefix.factors for found in seen.hashes.values() for prefix in found.binaries if prefix.factors]
    if not stated and not any(found.models for found in seen.bundles.values()):
        # Triton in vLLM: MCV writes the targets as it does for Triton alone.
        return [versions.target(found.backend, found.arch, found.warp_size) for found in sorted(kernels)]
    if not kernels:
        kernels = {_told(factors, here) for factors in stated or [Factors()]}
    cuda = sorted({factors.variable("VLLM_MAIN_CUDA_VERSION")[:32] for factors in stated}) or [""]
    targets = [
        versions.target(
            found.backend, f"sm_{found.arch}" if found.backend == "cuda" else found.arch, found.warp_size, v
        )
        for found in sorted(kernels)
        for v in cuda
    ]
    return [target for number, target in enumerate(targets) if target not in targets[:number]]


def _told(factors: Factors, here: Sequence[Target]) -> Target:
    """Return what the environment of the compilation says, or the GPUs of this machine where they are of one kind."""
    device = factors.variable("VLLM_TARGET_DEVICE")
    # ROCm's GPUs are called hip by Triton and by nodes; MCV's "rocm" fits no GPU (prior-art/gkm-03-compat-check.md).
    backend = {"rocm": "hip"}.get(device, device)
    arch = factors.variable("VLLM_PAGED_ATTN_ARCH").removeprefix("sm_")
    if arch:
        backend = backend or "cuda"
        told = Target(backend, arch, _WARP_SIZES.get(backend, 0))
        if can_be(told):
            return told
    fitting = {found for found in here if not backend or found.backend == backend}
    if len(fitting) == 1:
        return fitting.pop()
    raise GKMError(
        Reason.METADATA_MISSING,
        "the cache does not say which GPU it was compiled for"
        + (f", and this machine has {len(fitting)} kinds of GPU" if fitting else ", and this machine has no such GPU"),
        "build the image on the machine that compiled it",
    )
