"""The options `--gpu` and `--gpus`: GPUs that the user names instead of those of this machine or of a cache."""

import re
from pathlib import Path
from typing import Annotated

import typer
from gkm.api.targets import CUDA, HIP, GpuTarget
from gkm.gpus.targets import normalize_target
from gkm.images.cache import is_valid_target

from gkm_cli.cache import gpu_files
from gkm_cli.output import UsageError

GPUOption = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="BACKEND:ARCH:WARP",
        help="The GPU that a vLLM cache was compiled for, if its artifacts do not name one.",
    ),
]
GPUsOption = Annotated[
    Path | None,
    typer.Option(
        "--gpus",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="GPUs from a file: `gkm node detect -o json`, a node object, or a list of node objects.",
    ),
]
_WARP = re.compile(r"[0-9]{1,4}", re.ASCII)
_ARCHS = {CUDA: re.compile(r"[0-9]{2,3}", re.ASCII), HIP: re.compile(r"gfx[0-9a-f]{3,5}", re.ASCII)}


def gpu_from_options(gpu: str, file: Path | None) -> list[GpuTarget]:
    """Return the GPU that the options name; an empty list without options.

    Raises:
        UsageError: the options name no GPU, or several.
        OSError: the file cannot be read.
    """
    if gpu and file:
        raise UsageError("--gpu and --gpus exclude each other", "give one of them")
    if file:
        return [_gpu_from_file(file)]
    return [_parse_gpu(gpu)] if gpu else []


def _parse_gpu(text: str) -> GpuTarget:
    backend, _, rest = text.partition(":")
    arch, _, warp_size = rest.partition(":")
    if _WARP.fullmatch(warp_size):
        found = normalize_target(GpuTarget(backend, arch, int(warp_size)))
        target = GpuTarget(found.backend, found.arch, found.warp_size)
        known = _ARCHS.get(target.backend)
        if is_valid_target(target) and (known is None or known.fullmatch(target.arch)):
            return target
    raise UsageError(
        f"--gpu {text[:80]!r} names no GPU", "write BACKEND:ARCH:WARP, such as cuda:75:32 or hip:gfx942:64"
    )


def _gpu_from_file(file: Path) -> GpuTarget:
    found = {
        GpuTarget(gpu.backend, gpu.arch, gpu.warp_size)
        for node in gpu_files.read(file)
        for gpu in node.gpus
        if not gpu.fatal_fault
    }
    if len(found) != 1:
        kinds = f"{len(found)} kinds of GPU" if found else "no usable GPU"
        raise UsageError(f"{file} lists {kinds}", "name the one that compiled the cache with --gpu BACKEND:ARCH:WARP")
    (target,) = found
    if not is_valid_target(target):
        raise UsageError(f"{file} lists an impossible GPU", "name the GPU with --gpu BACKEND:ARCH:WARP")
    return target
