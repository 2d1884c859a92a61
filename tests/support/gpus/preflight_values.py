"""Targets as in labels, and GPUs to compare with them."""

from typing import Any

import msgspec
from gkm.api.targets import GpuTarget
from gkm.gpus.values import Fault, Gpu


def target(
    backend: str = "cuda", arch: str = "90", warp_size: int = 32, ptx_version: int = 0, cuda_version: str = ""
) -> GpuTarget:
    return GpuTarget(backend, arch, warp_size, ptx_version, cuda_version)


def gpu(index: int = 0, arch: str = "90", backend: str = "cuda", warp_size: int = 32, fault: str = "") -> Gpu:
    faults = (Fault("nvmlDeviceGetName", fault, "GPU is lost"),) if fault else ()
    return Gpu(index, backend, arch=arch, warp_size=warp_size, faults=faults)


def with_driver(version: str, cuda: str = "", **facts: Any) -> Gpu:  # noqa: ANN401 -- as `gpu` takes them
    return msgspec.structs.replace(gpu(**facts), driver_version=version, cuda_driver_version=cuda)
