"""The `amdsmi` binding for tests: the functions that gkm.gpus calls, answering what a JSON file says.

Names, arguments, answers and exceptions are those of the real one (ROCm/amdsmi, py-interface/amdsmi_interface.py and
amdsmi_exception.py; AMD SMI 7.2.3, "AMD SMI Python API reference"). The file is named by GKM_FAKE_AMDSMI:
    {"errors": {CALL: STATUS}, "import": "", "gpus": [{"market_name", "target_graphics_version", "uuid", "bdf",
     "driver_version", "memory_bytes", "errors": {CALL: STATUS}}]}
STATUS is a name such as AMDSMI_STATUS_BUSY, or KeyError and its like, which the real one lets through. A key that a GPU
lacks is missing from the answer.
"""

import builtins
import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Any


class AmdSmiMemoryType(IntEnum):
    VRAM = 0
    VIS_VRAM = 1
    GTT = 2


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.err_code = 1
        self.err_info = f"{status} - {status.removeprefix('AMDSMI_STATUS_').replace('_', ' ').capitalize()}"

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | {self.err_info}"


class _State:
    """What amdsmi_init found; before it, every call fails."""

    machine: dict[str, Any] | None = None


def _described() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(os.environ["GKM_FAKE_AMDSMI"]).read_text())
    return found


def _fail(owner: dict[str, Any], call: str) -> None:
    status = owner.get("errors", {}).get(call)
    if status is None:
        return
    if status.startswith("AMDSMI_"):
        raise AmdSmiLibraryException(status)
    raise getattr(builtins, status)(call)


def _gpu(handle: object, call: str) -> dict[str, Any]:
    if _State.machine is None:
        raise AmdSmiLibraryException("AMDSMI_STATUS_NOT_INIT")
    if not isinstance(handle, dict):
        raise AmdSmiException(f"not a handle: {handle!r}")
    _fail(handle, call)
    return handle


def amdsmi_init(flag: int = 2) -> None:
    del flag
    machine = _described()
    _fail(machine, "amdsmi_init")
    _State.machine = machine


def amdsmi_shut_down() -> None:
    machine, _State.machine = _State.machine, None
    _fail(machine or {}, "amdsmi_shut_down")


def amdsmi_get_processor_handles() -> list[Any]:
    if _State.machine is None:
        raise AmdSmiLibraryException("AMDSMI_STATUS_NOT_INIT")
    _fail(_State.machine, "amdsmi_get_processor_handles")
    return list(_State.machine["gpus"])


def amdsmi_get_gpu_asic_info(processor_handle: object) -> dict[str, Any]:
    gpu = _gpu(processor_handle, "amdsmi_get_gpu_asic_info")
    return {key: gpu[key] for key in ("market_name", "target_graphics_version") if key in gpu} | {"vendor_id": "0x1002"}


def amdsmi_get_gpu_device_uuid(processor_handle: object) -> Any:  # noqa: ANN401 -- whatever a test describes
    return _gpu(processor_handle, "amdsmi_get_gpu_device_uuid")["uuid"]


def amdsmi_get_gpu_driver_info(processor_handle: object) -> dict[str, Any]:
    gpu = _gpu(processor_handle, "amdsmi_get_gpu_driver_info")
    return {"driver_name": "amdgpu", "driver_version": gpu["driver_version"], "driver_date": "2025/01/01 00:00"}


def amdsmi_get_gpu_device_bdf(processor_handle: object) -> Any:  # noqa: ANN401 -- whatever a test describes
    return _gpu(processor_handle, "amdsmi_get_gpu_device_bdf")["bdf"]


def amdsmi_get_gpu_memory_total(processor_handle: object, mem_type: AmdSmiMemoryType) -> Any:  # noqa: ANN401 -- the same
    if not isinstance(mem_type, AmdSmiMemoryType):
        raise AmdSmiException(f"not a type of memory: {mem_type!r}")
    return _gpu(processor_handle, "amdsmi_get_gpu_memory_total")["memory_bytes"]


if _described().get("import"):
    raise getattr(builtins, _described()["import"])("libamd_smi.so: cannot open shared object file")
