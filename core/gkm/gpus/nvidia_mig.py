"""Read the MIG devices of an NVIDIA GPU with NVML. Runs in the probe's process only.

A MIG device has the compute capability of its GPU (NVIDIA Multi-Instance GPU User Guide), so a cache that fits the GPU
fits it. NVML counts slots; many of them are empty, and NVML returns NOT_FOUND for those.
"""

import pynvml

from gkm.gpus.driver_calls import DriverCalls
from gkm.gpus.values import MAX_MIG_DEVICES, MigDevice, printable

_PREFIX = "MIG "


def mig_devices(caller: DriverCalls, gpu: object) -> tuple[MigDevice, ...]:
    """Return the MIG devices of a GPU in MIG mode; a failed call is a fault of the GPU."""
    slots = caller.query("nvmlDeviceGetMaxMigDeviceCount", lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu), 0)
    handles = [_handle(caller, gpu, slot) for slot in range(min(slots, MAX_MIG_DEVICES))]
    return tuple(_device(caller, handle) for handle in handles if handle is not None)


def _handle(caller: DriverCalls, gpu: object, slot: int) -> object | None:
    def device() -> object | None:
        try:
            handle: object = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
        except pynvml.NVMLError_NotFound:
            return None
        return handle

    return caller.query("nvmlDeviceGetMigDeviceHandleByIndex", device, None)


def _device(caller: DriverCalls, handle: object) -> MigDevice:
    name = caller.query("nvmlDeviceGetName", lambda: pynvml.nvmlDeviceGetName(handle), "", optional=True)
    memory = caller.query("nvmlDeviceGetMemoryInfo", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0)
    return MigDevice(
        # NVML names it after its GPU: "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
        profile=printable(name.rpartition(_PREFIX)[2]),
        uuid=printable(caller.query("nvmlDeviceGetUUID", lambda: pynvml.nvmlDeviceGetUUID(handle), "")),
        memory_mib=memory >> 20,
    )
