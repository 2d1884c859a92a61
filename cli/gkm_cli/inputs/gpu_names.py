"""Names of GPUs: a model, or BACKEND:ARCH:WARP; and the flavors of nodes that such a name means. Pure."""

import re
from collections.abc import Iterable, Mapping

from gkm.api.targets import CUDA, HIP, GpuTarget
from gkm.gpus.targets import normalize_target
from gkm.images.cache import is_valid_target

from gkm_cli.output import UsageError

_WARP = re.compile(r"[0-9]{1,4}", re.ASCII)
_ARCHS = {CUDA: re.compile(r"[0-9]{2,3}", re.ASCII), HIP: re.compile(r"gfx[0-9a-f]{3,5}", re.ASCII)}
_BY_ARCH = {
    GpuTarget(CUDA, "70", 32): ("v100",),
    GpuTarget(CUDA, "75", 32): ("t4",),
    GpuTarget(CUDA, "80", 32): ("a100", "a30"),
    GpuTarget(CUDA, "86", 32): ("a10", "a40"),
    GpuTarget(CUDA, "89", 32): ("l4", "l40", "l40s"),
    GpuTarget(CUDA, "90", 32): ("h100", "h200", "gh200"),
    GpuTarget(CUDA, "100", 32): ("b200", "gb200"),
    GpuTarget(CUDA, "103", 32): ("b300", "gb300"),
    GpuTarget(HIP, "gfx90a", 64): ("mi210", "mi250", "mi250x"),
    GpuTarget(HIP, "gfx942", 64): ("mi300a", "mi300x", "mi325x"),
    GpuTarget(HIP, "gfx950", 64): ("mi350x", "mi355x"),
}
MODELS: Mapping[str, GpuTarget] = {model: target for target, models in _BY_ARCH.items() for model in models}
"""Sources: developer.nvidia.com/cuda-gpus, and the table of accelerators of ROCm."""
_WORD = re.compile(r"[a-z0-9]+", re.ASCII)


def parse_gpu(text: str) -> GpuTarget:
    """Return the kind of GPU that a text names: a model, or BACKEND:ARCH:WARP.

    Raises:
        UsageError: it names none.
    """
    if model := MODELS.get(text.lower()):
        return model
    backend, _, rest = text.partition(":")
    arch, _, warp_size = rest.partition(":")
    if _WARP.fullmatch(warp_size):
        found = normalize_target(GpuTarget(backend, arch, int(warp_size)))
        target = GpuTarget(found.backend, found.arch, found.warp_size)
        known = _ARCHS.get(target.backend)
        if is_valid_target(target) and (known is None or known.fullmatch(target.arch)):
            return target
    raise UsageError(
        f"--gpu {text[:80]!r} names no GPU",
        f"write BACKEND:ARCH:WARP, such as cuda:75:32 or hip:gfx942:64, or a model: {', '.join(MODELS)}",
    )


def flavors_named(text: str, flavors: Iterable[str]) -> list[str]:
    """Return the flavors of nodes that a name of a GPU means: `h100` is a word of `nvidia-h100-80gb-hbm3`.

    Raises:
        UsageError: the text has the form BACKEND:ARCH:WARP, and names no GPU.
    """
    models = set(_BY_ARCH.get(parse_gpu(text), ())) if ":" in text else {text.lower()} & MODELS.keys()
    return sorted(flavor for flavor in flavors if models & set(_WORD.findall(flavor.lower())))
