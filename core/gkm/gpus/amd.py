"""Read AMD GPUs with the Python binding of AMD SMI. Runs in the probe's process only.

The binding comes with ROCm (docs of AMD SMI 6.4.1 and 7.2.3, "AMD SMI Python API reference"; `amdsmi_interface.py` of
ROCm/amdsmi) and is not a dependency of GKM: without it, GKM sees no AMD GPUs. It must match the library that it comes
with, so GKM uses the installed one.
"""

import importlib
import re
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from gkm.api.targets import HIP
from gkm.gpus import pci
from gkm.gpus.driver_calls import DriverCalls
from gkm.gpus.values import MAX_GPUS, Gpu, Inventory, printable

BINDING = "amdsmi"
DRIVER = "amdgpu"
# LLVM's names of processors: gfx90a, gfx942, gfx1100. The last two digits are minor version and stepping.
_ARCH = re.compile(r"gfx([0-9]{1,2})[0-9a-f]{2}", re.ASCII)
_FIRST_WAVE32 = 10
_MAX_MODEL = 96


def read(devices: Path) -> Inventory:
    """Return the AMD GPUs that AMD SMI lists; without binding, driver or GPUs an empty reading without errors."""
    try:
        smi = importlib.import_module(BINDING)
    except Exception as error:  # noqa: BLE001 -- the import loads a library and may fail in any way
        if isinstance(error, ModuleNotFoundError) and error.name == BINDING:
            return Inventory()
        return _not_started(devices, f"{BINDING} cannot be imported: {error}")
    try:
        smi.amdsmi_init()
    except Exception as error:  # noqa: BLE001 -- see gkm.gpus.driver_calls
        code, message = describe_error(error) or (type(error).__name__, str(error))
        return _not_started(devices, f"amdsmi_init: {code}: {message}")
    try:
        return _inventory(smi)
    finally:
        with suppress(Exception):
            smi.amdsmi_shut_down()


def _not_started(devices: Path, problem: str) -> Inventory:
    """Return the reading when AMD SMI does not start: an error only where its driver holds, or could hold, a GPU."""
    if any(driver in ("", DRIVER) for driver in pci.drivers_of_gpus(pci.AMD, devices)):
        return Inventory(errors=(printable(problem),))
    return Inventory()


def _inventory(smi: ModuleType) -> Inventory:
    system = DriverCalls(describe_error)
    default: list[object] = []
    handles = system.query("amdsmi_get_processor_handles", lambda: list(smi.amdsmi_get_processor_handles()), default)
    gpus = tuple(_gpu(smi, index, handle) for index, handle in enumerate(handles[:MAX_GPUS]))
    return Inventory(gpus=gpus, errors=system.errors)


def _gpu(smi: ModuleType, index: int, handle: object) -> Gpu:
    caller = DriverCalls(describe_error)
    query = caller.query
    default: dict[str, object] = {}
    asic = query("amdsmi_get_gpu_asic_info", lambda: dict(smi.amdsmi_get_gpu_asic_info(handle)), default)
    arch = query("amdsmi_get_gpu_asic_info", lambda: _arch(asic), "") if asic else ""
    uuid = query("amdsmi_get_gpu_device_uuid", lambda: str(smi.amdsmi_get_gpu_device_uuid(handle)), "")
    driver = query(
        "amdsmi_get_gpu_driver_info", lambda: str(smi.amdsmi_get_gpu_driver_info(handle)["driver_version"]), ""
    )
    address = query("amdsmi_get_gpu_device_bdf", lambda: str(smi.amdsmi_get_gpu_device_bdf(handle)), "")
    # In bytes; the two calls with more details of the memory use MB.
    memory = query(
        "amdsmi_get_gpu_memory_total",
        lambda: int(smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.VRAM)),
        0,
    )
    return Gpu(
        index=index,
        backend=HIP,
        uuid=printable(uuid),
        model=printable(str(asic.get("market_name", "")), _MAX_MODEL),
        driver_version=printable(driver),
        arch=arch,
        warp_size=warp_size(arch),
        memory_mib=max(0, memory) >> 20,
        pci_address=pci.normalized(address),
        faults=caller.faults,
    )


def _arch(asic: dict[str, object]) -> str:
    """Return the processor; the market name does not determine it (MCV guesses it from there, often wrongly).

    Raises:
        ValueError: the field is not the name of a processor.
    """
    text = str(asic["target_graphics_version"]).lower()
    plain = text.partition(":")[0]
    if not _ARCH.fullmatch(plain):
        raise ValueError(f"target_graphics_version {text[:32]!r} names no processor")
    return plain


def warp_size(arch: str) -> int:
    """Return the number of threads in a warp of an AMD GPU, 0 for an unknown processor; AMD SMI does not report it.

    64 up to gfx9 (GCN, CDNA), 32 from gfx10 on (RDNA): LLVM's FEATURE_WAVE32, which HIP compiles for by default (llvm
    D88370, clang/test/Driver/hip-wavefront-size.hip).
    """
    match = _ARCH.fullmatch(arch)
    if match is None:
        return 0
    return 32 if int(match[1]) >= _FIRST_WAVE32 else 64


def describe_error(error: Exception) -> tuple[str, str] | None:
    """Return the code and the text of an AMD SMI error, such as "AMDSMI_STATUS_BUSY - Device busy"."""
    text = getattr(error, "err_info", None)
    if not isinstance(text, str):
        return None
    code, _, words = text.partition(" - ")
    return code.removeprefix("AMDSMI_STATUS_").strip(), words.strip() or code
