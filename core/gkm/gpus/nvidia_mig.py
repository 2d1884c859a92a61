"""The MIG devices of an NVIDIA GPU, by NVML. Runs in the probe's process only.

A MIG device has the compute capability of the GPU that it is a part of (NVIDIA Multi-Instance GPU User Guide), so what
fits the GPU fits it. NVML counts places; many of them are empty, and NOT_FOUND says so of one.
"""

import pynvml

from gkm.gpus.asking import Caller
from gkm.gpus.values import MAX_MIG_DEVICES, MigDevice, printable

_PREFIX = "MIG "


def mig_devices(caller: Caller, gpu: object) -> tuple[MigDevice, ...]:
    """Return the MIG devices of a GPU in MIG mode; what cannot be read of them is a fault of the GPU."""
    places = caller.ask("nvmlDeviceGetMaxMigDeviceCount", lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu), 0)
    handles = [_handle(caller, gpu, place) for place in range(min(places, MAX_MIG_DEVICES))]
    return tuple(_device(caller, handle) for handle in handles if handle is not None)


def _handle(caller: Caller, gpu: object, place: int) -> object | None:
    def found() -> object | None:
        try:
            handle: object = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        except pynvml.NVMLError_NotFound:
            return None
        return handle

    return caller.ask("nvmlDeviceGetMigDeviceHandleByIndex", found, None)


def _device(caller: Caller, handle: object) -> MigDevice:
    name = caller.ask("nvmlDeviceGetName", lambda: pynvml.nvmlDeviceGetName(handle), "", optional=True)
    memory = caller.ask("nvmlDeviceGetMemoryInfo", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0)
    return MigDevice(
        # NVML names it after its GPU: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
        profile=printable(name.rpartition(_PREFIX)[2]),
        uuid=printable(caller.ask("nvmlDeviceGetUUID", lambda: pynvml.nvmlDeviceGetUUID(handle), "")),
        memory_mib=memory >> 20,
    )
