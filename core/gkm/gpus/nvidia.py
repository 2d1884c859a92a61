"""Read NVIDIA GPUs with NVML. Runs in the probe's process only: it loads the driver's library until it ends."""

import ctypes
from contextlib import suppress
from functools import partial
from pathlib import Path

import pynvml

from gkm.gpus import fabric, pci
from gkm.gpus.driver_calls import DriverCalls
from gkm.gpus.nvidia_mig import mig_devices
from gkm.gpus.values import MAX_GPUS, Gpu, GpuFabricInfo, Inventory, printable

BACKEND = "cuda"
DRIVER = "nvidia"
WARP_SIZE = 32
"""Of every NVIDIA GPU so far (CUDA C++ Programming Guide, "Compute Capabilities"); NVML does not report it."""

_MAX_MODEL = 96
_CODES = {
    number: name.removeprefix("NVML_ERROR_")
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(number, int)
}
# Answers of older drivers and of GPUs without the feature: not a fault.
ABSENT = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"})


class Nvidia:
    """The Vendor for NVML."""

    def read(self, devices: Path) -> Inventory:
        """Return the GPUs that NVML lists; without GPUs or a driver an empty reading without errors."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return _nvml_unavailable(error, devices)
        try:
            return _inventory()
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _nvml_unavailable(error: pynvml.NVMLError, devices: Path) -> Inventory:
    """Return the reading when NVML does not start: an error only where the PCI bus has a GPU for its driver."""
    code = code_of(error)
    drivers = pci.drivers_of_gpus(pci.NVIDIA, devices)
    if code == "LIBRARY_NOT_FOUND":
        if DRIVER not in drivers:
            return Inventory()
        problem = "the NVIDIA driver holds GPUs here, but its library libnvidia-ml.so.1 is not visible to this process"
        return Inventory(errors=(f"nvmlInit: {problem}; run the container with runtimeClassName nvidia",))
    if code == "DRIVER_NOT_LOADED" and not any(driver in ("", DRIVER) for driver in drivers):
        # The library alone (an image for all nodes), or GPUs that belong to virtual machines.
        return Inventory()
    return Inventory(errors=(f"nvmlInit: {text_of(error)}",))


def _inventory() -> Inventory:
    system = DriverCalls(describe_error, ABSENT)
    driver = system.query("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion, "")
    cuda = system.query("nvmlSystemGetCudaDriverVersion", pynvml.nvmlSystemGetCudaDriverVersion_v2, 0, optional=True)
    count = system.query("nvmlDeviceGetCount", pynvml.nvmlDeviceGetCount, 0)
    gpus = tuple(_gpu(index, printable(driver), cuda_version(cuda)) for index in range(min(count, MAX_GPUS)))
    return Inventory(gpus=gpus, errors=system.errors)


def _gpu(index: int, driver: str, cuda: str) -> Gpu:
    caller = DriverCalls(describe_error, ABSENT)
    query = caller.query
    handle: object = query("nvmlDeviceGetHandleByIndex", lambda: pynvml.nvmlDeviceGetHandleByIndex(index), None)
    if handle is None:
        return Gpu(index, BACKEND, driver_version=driver, cuda_driver_version=cuda, faults=caller.faults)
    major, minor = query(
        "nvmlDeviceGetCudaComputeCapability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0)
    )
    uuid = query("nvmlDeviceGetUUID", lambda: pynvml.nvmlDeviceGetUUID(handle), "")
    model = query("nvmlDeviceGetName", lambda: pynvml.nvmlDeviceGetName(handle), "")
    memory = query("nvmlDeviceGetMemoryInfo", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0)
    address = query("nvmlDeviceGetPciInfo", lambda: str(pynvml.nvmlDeviceGetPciInfo(handle).busId), "", optional=True)
    power = query("nvmlDeviceGetPowerState", lambda: pynvml.nvmlDeviceGetPowerState(handle), -1, optional=True)
    mig = query("nvmlDeviceGetMigMode", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0, optional=True) == 1
    parts = mig_devices(caller, handle) if mig else ()
    attached = _fabric(caller, handle)
    return Gpu(
        index=index,
        backend=BACKEND,
        uuid=printable(uuid),
        model=printable(model, _MAX_MODEL),
        driver_version=driver,
        cuda_driver_version=cuda,
        arch=f"{major}{minor}" if major > 0 and minor >= 0 else "",
        warp_size=WARP_SIZE,
        memory_mib=memory >> 20,
        pci_address=pci.normalized(address),
        mig=mig,
        mig_devices=parts,
        power_state=f"P{power}" if pynvml.NVML_PSTATE_0 <= power <= pynvml.NVML_PSTATE_15 else "",
        fabric=attached,
        faults=caller.faults,
    )


def _fabric(caller: DriverCalls, handle: object) -> GpuFabricInfo | None:
    for structure, function in (
        (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_t, pynvml.nvmlDeviceGetGpuFabricInfo),
    ):
        info = structure()
        # The binding passes its second argument unchanged, and NVML needs a pointer.
        call = partial(function, handle, ctypes.byref(info))
        if caller.query("nvmlDeviceGetGpuFabricInfo", call, None, optional=True) is None:
            continue
        return fabric.decode(
            list(info.clusterUuid),
            info.cliqueId,
            info.state,
            "Success" if info.status == pynvml.NVML_SUCCESS else text_of(pynvml.NVMLError(info.status)),
            mask=getattr(info, "healthMask", 0),
            summary=getattr(info, "healthSummary", 0),
        )
    return None


def describe_error(error: Exception) -> tuple[str, str] | None:
    """Return the code and the text of an NVML error."""
    return (code_of(error), text_of(error)) if isinstance(error, pynvml.NVMLError) else None


def code_of(error: pynvml.NVMLError) -> str:
    """Return NVML's name of an error, without its prefix."""
    return str(_CODES.get(error.value, error.value))


def text_of(error: pynvml.NVMLError) -> str:
    """Return NVML's text for an error."""
    return printable(str(error))


def cuda_version(number: int) -> str:
    """Return 1000 * major + 10 * minor (nvml.h, nvmlSystemGetCudaDriverVersion) as `major.minor`."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""
