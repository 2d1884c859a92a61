"""NVIDIA GPUs by NVML. Runs in the probe's process only: it loads the driver's library and holds it until it ends."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pynvml

from gkm.gpus import fabric
from gkm.gpus.values import MAX_GPUS, Fabric, Fault, Gpu, Inventory, printable

BACKEND = "cuda"
WARP_SIZE = 32
"""Of every NVIDIA GPU so far (CUDA C++ Programming Guide, "Compute Capabilities"); NVML does not say it."""

_T = TypeVar("_T")
_CODES = {
    number: name.removeprefix("NVML_ERROR_")
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(number, int)
}
# Answers of older drivers and of GPUs that lack the thing: no fault of the GPU.
_ABSENT = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"})


class Nvidia:
    """The Vendor of NVML."""

    def read(self) -> Inventory:
        """Return the GPUs that NVML shows. No library means no NVIDIA driver here, which is no error."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if code_of(error) == "LIBRARY_NOT_FOUND":
                return Inventory()
            return Inventory(errors=(f"nvmlInit: {text_of(error)}",))
        try:
            return _inventory()
        finally:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _inventory() -> Inventory:
    system = _Caller()
    driver = system.ask("nvmlSystemGetDriverVersion", pynvml.nvmlSystemGetDriverVersion, "")
    cuda = system.ask("nvmlSystemGetCudaDriverVersion", pynvml.nvmlSystemGetCudaDriverVersion_v2, 0)
    count = system.ask("nvmlDeviceGetCount", pynvml.nvmlDeviceGetCount, 0)
    gpus = tuple(_gpu(index, printable(driver), cuda_version(cuda)) for index in range(min(count, MAX_GPUS)))
    return Inventory(gpus=gpus, errors=tuple(f"{fault.call}: {fault.message}" for fault in system.faults))


def _gpu(index: int, driver: str, cuda: str) -> Gpu:
    caller = _Caller()
    handle: object = caller.ask("nvmlDeviceGetHandleByIndex", lambda: pynvml.nvmlDeviceGetHandleByIndex(index), None)
    if handle is None:
        return Gpu(index, BACKEND, driver_version=driver, cuda_driver_version=cuda, faults=tuple(caller.faults))
    major, minor = caller.ask(
        "nvmlDeviceGetCudaComputeCapability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0)
    )
    return Gpu(
        index=index,
        backend=BACKEND,
        uuid=printable(caller.ask("nvmlDeviceGetUUID", lambda: pynvml.nvmlDeviceGetUUID(handle), "")),
        model=printable(caller.ask("nvmlDeviceGetName", lambda: pynvml.nvmlDeviceGetName(handle), ""), 96),
        driver_version=driver,
        cuda_driver_version=cuda,
        arch=f"{major}{minor}" if major > 0 and minor >= 0 else "",
        warp_size=WARP_SIZE,
        memory_mib=caller.ask("nvmlDeviceGetMemoryInfo", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0) >> 20,
        pci_address=printable(caller.ask("nvmlDeviceGetPciInfo", lambda: _pci_address(handle), "", optional=True)),
        mig=caller.ask("nvmlDeviceGetMigMode", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0, optional=True) == 1,
        fabric=_fabric(caller, handle),
        faults=tuple(caller.faults),
    )


def _pci_address(handle: object) -> str:
    return str(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()


def _fabric(caller: "_Caller", handle: object) -> Fabric | None:
    for structure, function in (
        (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_t, pynvml.nvmlDeviceGetGpuFabricInfo),
    ):
        info = structure()
        # The binding passes its second argument on as it is, and NVML wants a pointer.
        call = partial(function, handle, ctypes.byref(info))
        if caller.ask("nvmlDeviceGetGpuFabricInfo", call, None, optional=True) is None:
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


class _Caller:
    """Makes calls about one thing and keeps what failed, so that one bad answer costs one field."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def ask(self, call: str, function: Callable[[], _T], otherwise: _T, *, optional: bool = False) -> _T:
        try:
            return function()
        except pynvml.NVMLError as error:
            if not (optional and code_of(error) in _ABSENT):
                self.faults.append(Fault(call, code_of(error), text_of(error)))
        except UnicodeDecodeError:
            # pynvml decodes names as UTF-8; a garbled VBIOS string must not hide the GPU.
            self.faults.append(Fault(call, "UNREADABLE", "the answer is not text"))
        return otherwise


def code_of(error: pynvml.NVMLError) -> str:
    """Return NVML's name of an error, without its prefix."""
    return str(_CODES.get(error.value, error.value))


def text_of(error: pynvml.NVMLError) -> str:
    """Return NVML's words for an error."""
    return printable(str(error))


def cuda_version(number: int) -> str:
    """Return 1000 * major + 10 * minor (nvml.h, nvmlSystemGetCudaDriverVersion) as people write it."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""
