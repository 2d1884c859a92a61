"""Read NVIDIA GPUs with NVML. Runs in the probe's process only: it loads the driver's library until it ends.

Where no container runtime brings the library in, it comes from the node's directory in which the driver is installed,
which is mounted into the container (chart value agent.driverRoot). Its libraries are not searched as a whole: the
node's libc beside them must not take the place of the container's.
"""

import ctypes
import errno
import os
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from gkm.api.targets import CUDA
from gkm.gpus import fabric, pci
from gkm.gpus.driver_calls import DriverCalls
from gkm.gpus.values import (
    MAX_GPUS,
    MAX_LINKS,
    Gpu,
    GpuFabricInfo,
    Inventory,
    LinkErrors,
    printable,
)

DRIVER = "nvidia"
WARP_SIZE = 32
"""Warp size of every GPU so far (CUDA C++ Programming Guide, "Compute Capabilities"); NVML does not report it."""
_MAX_MODEL = 96
_CODES = {
    number: name.removeprefix("NVML_ERROR_")
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(number, int)
}
# Answers of older drivers and of GPUs without the feature: not a fault.
ABSENT = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"})
FABRIC_STRUCTURES = (
    (pynvml.c_nvmlGpuFabricInfo_v4_t, pynvml.nvmlDeviceGetGpuFabricInfo_v4),
    (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
    (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
    (pynvml.c_nvmlGpuFabricInfo_t, pynvml.nvmlDeviceGetGpuFabricInfo),
)
"""The newest first: the first structure that the driver fills is read."""
REPLAYS = (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,)
RECOVERIES = (
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
)
"""Fields of one link, of Hopper and of Blackwell. The fields of lanes and their totals (46 to 59) are always 0 on
Hopper (DataDog/datadog-agent #55966)."""
_UNSIGNED = {
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
}
VARIABLE = "GKM_DRIVER_ROOT"
LIBRARY = "libnvidia-ml.so.1"
_MAX_STEPS = 256
"""Names to follow; Linux follows 40 links."""


def read(devices: Path) -> Inventory:
    """Return the NVIDIA GPUs that NVML lists; without GPUs or a driver an empty reading without errors."""
    load()
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
        return Inventory(errors=(f"nvmlInit: {problem}; {action()}",))
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
        return Gpu(index, CUDA, driver_version=driver, cuda_driver_version=cuda, faults=caller.faults)
    major, minor = query(
        "nvmlDeviceGetCudaComputeCapability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle), (0, 0)
    )
    uuid = query("nvmlDeviceGetUUID", lambda: pynvml.nvmlDeviceGetUUID(handle), "")
    model = query("nvmlDeviceGetName", lambda: pynvml.nvmlDeviceGetName(handle), "")
    memory = query("nvmlDeviceGetMemoryInfo", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total, 0)
    address = query("nvmlDeviceGetPciInfo", lambda: str(pynvml.nvmlDeviceGetPciInfo(handle).busId), "", optional=True)
    # Only its errors are used: a GPU that is lost or has no power answers with one.
    query("nvmlDeviceGetPowerState", lambda: pynvml.nvmlDeviceGetPowerState(handle), None, optional=True)
    mig = query("nvmlDeviceGetMigMode", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], 0, optional=True) == 1
    attached = _fabric(caller, handle)
    return Gpu(
        index=index,
        backend=CUDA,
        uuid=printable(uuid),
        model=printable(model, _MAX_MODEL),
        driver_version=driver,
        cuda_driver_version=cuda,
        arch=f"{major}{minor}" if major > 0 and minor >= 0 else "",
        warp_size=WARP_SIZE,
        memory_mib=memory >> 20,
        pci_address=pci.normalized(address),
        mig=mig,
        fabric=attached,
        links=_links(caller, handle) if attached is not None else (),
        faults=caller.faults,
    )


def _fabric(caller: DriverCalls, handle: object) -> GpuFabricInfo | None:
    for structure, function in FABRIC_STRUCTURES:
        info = structure()
        # The binding passes its second argument unchanged, and NVML needs a pointer.
        call = partial(function, handle, ctypes.byref(info))
        if caller.query("nvmlDeviceGetGpuFabricInfo", call, None, optional=True) is None:
            continue
        return fabric.decode(
            list(info.clusterUuid),
            _clique(info),
            info.state,
            "Success" if info.status == pynvml.NVML_SUCCESS else text_of(pynvml.NVMLError(info.status)),
            mask=getattr(info, "healthMask", 0),
            summary=getattr(info, "healthSummary", 0),
        )
    return None


def _links(caller: DriverCalls, handle: object) -> tuple[LinkErrors, ...]:
    """Return the counters of the links that NVML has any of: a GPU has fewer than MAX_LINKS."""
    asked = [(number, link) for link in range(MAX_LINKS) for number in (*REPLAYS, *RECOVERIES)]
    values: tuple[Any, ...] = caller.query(
        "nvmlDeviceGetFieldValues", lambda: tuple(pynvml.nvmlDeviceGetFieldValues(handle, asked)), (), optional=True
    )
    known = {
        (value.fieldId, value.scopeId): getattr(value.value, _UNSIGNED[value.valueType])
        for value in values
        if value.nvmlReturn == pynvml.NVML_SUCCESS and value.valueType in _UNSIGNED
    }

    def count(link: int, numbers: tuple[int, ...]) -> int | None:
        return max((known[number, link] for number in numbers if (number, link) in known), default=None)

    found = (LinkErrors(link, count(link, REPLAYS), count(link, RECOVERIES)) for link in range(MAX_LINKS))
    return tuple(each for each in found if each.replays is not None or each.recoveries is not None)


def _clique(info: ctypes.Structure) -> int | None:
    if hasattr(info, "cliqueId"):
        return int(info.cliqueId)
    # The array bounds the count, which comes from the driver.
    return fabric.clique_of((clique.type, clique.id) for clique in info.cliques[: info.numCliques])


def describe_error(error: Exception) -> tuple[str, str] | None:
    """Return the code and the text of an NVML error."""
    return (code_of(error), text_of(error)) if isinstance(error, pynvml.NVMLError) else None


def code_of(error: pynvml.NVMLError) -> str:
    """Return NVML's name of an error, without its prefix."""
    return str(_CODES.get(error.value, error.value))


def text_of(error: pynvml.NVMLError) -> str:
    """Return NVML's text for an error, printable."""
    return printable(str(error))


def cuda_version(number: int) -> str:
    """Return NVML's number of a CUDA version, 1000 * major + 10 * minor, as `major.minor`; "" for 0."""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""


# The paths of RHEL and SUSE, Debian, and others; a library for another architecture is not loadable.
_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
)


def load() -> None:
    """Load NVIDIA's management library (NVML) from the driver directory of the node, if the environment names one."""
    root = os.environ.get(VARIABLE)
    for directory in _DIRECTORIES if root else ():
        with suppress(OSError):
            ctypes.CDLL(str(_beneath(Path(str(root)), Path(directory, LIBRARY))), mode=ctypes.RTLD_GLOBAL)
            return


def action() -> str:
    """Return the next step for an administrator if the driver's library is not visible in the container."""
    if not os.environ.get(VARIABLE):
        return "run the container with runtimeClassName nvidia, or set agent.driverRoot"
    return "agent.driverRoot is set: name the directory with the usr/lib or usr/lib64 of the driver"


def _beneath(root: Path, path: Path) -> Path:
    """Resolve links as a process does whose root directory is `root`: absolute ones start there, too.

    Raises:
        OSError: there are too many links.
    """
    resolved, parts = root, deque(path.parts)
    for _ in range(_MAX_STEPS):
        if not parts:
            return resolved
        match parts.popleft():
            case "/":
                resolved = root
            case "..":
                resolved = resolved if resolved == root else resolved.parent
            case part:
                step = resolved / part
                if step.is_symlink():
                    parts.extendleft(reversed(step.readlink().parts))
                else:
                    resolved = step
    raise OSError(errno.ELOOP, "too many links", str(root / path))
