"""AMD's GPUs, through the child process, over a binding with chosen answers; and two vendors on one node."""

import os
from pathlib import Path

import pytest
from gkm.gpus import preflight
from gkm.gpus.amd import warp_size
from gkm.gpus.groups import groups
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.targets import NormalizedTarget
from gkm.gpus.values import Gpu, Inventory
from support.fakes import amdsmi_binding, nvml_library, pci_devices
from support.fakes.amdsmi_binding import MI300X, RX7900
from support.fakes.nvml_library import A100, H100
from support.gpus.inventories import Reading

# amdsmi_status_t (amdsmi.h of AMD SMI 7), without AMDSMI_STATUS_.
STATUSES = [
    "INVAL", "NOT_SUPPORTED", "NOT_YET_IMPLEMENTED", "FAIL_LOAD_MODULE", "FAIL_LOAD_SYMBOL", "DRM_ERROR", "API_FAILED",
    "TIMEOUT", "RETRY", "NO_PERM", "INTERRUPT", "IO", "ADDRESS_FAULT", "FILE_ERROR", "OUT_OF_RESOURCES",
    "INTERNAL_EXCEPTION", "INPUT_OUT_OF_BOUNDS", "INIT_ERROR", "REFCOUNT_OVERFLOW", "DIRECTORY_NOT_FOUND", "BUSY",
    "NOT_FOUND", "NOT_INIT", "NO_SLOT", "DRIVER_NOT_LOADED", "MORE_DATA", "NO_DATA", "INSUFFICIENT_SIZE",
    "UNEXPECTED_SIZE", "UNEXPECTED_DATA", "NON_AMD_CPU", "NO_ENERGY_DRV", "NO_MSR_DRV", "NO_HSMP_DRV", "NO_HSMP_SUP",
    "NO_HSMP_MSG_SUP", "HSMP_TIMEOUT", "NO_DRV", "FILE_NOT_FOUND", "ARG_PTR_NULL", "AMDGPU_RESTART_ERR",
    "SETTING_UNAVAILABLE", "CORRUPTED_EEPROM", "MAP_ERROR", "UNKNOWN_ERROR",
]  # fmt: skip
RAISED = ["KeyError", "AttributeError", "ValueError", "OSError", "UnicodeError", "TypeError"]
ERRORS = [*(f"AMDSMI_STATUS_{status}" for status in STATUSES), *RAISED]
CALLS = [
    "amdsmi_get_gpu_asic_info",
    "amdsmi_get_gpu_device_uuid",
    "amdsmi_get_gpu_driver_info",
    "amdsmi_get_gpu_device_bdf",
    "amdsmi_get_gpu_memory_total",
]


@pytest.fixture
def quiet_nvidia(tmp_path: Path) -> dict[str, str]:
    """Return the environment that hides this machine's NVIDIA library."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


@pytest.fixture
def amd(tmp_path: Path, quiet_nvidia: dict[str, str]) -> Reading:
    def read(*gpus: amdsmi_binding.Gpu, held_by: str | None = "amdgpu", **machine: str) -> Inventory:
        if held_by is not None:
            pci_devices.plug(tmp_path / "pci", pci_devices.AMD, driver=held_by, device_class="0x120000")
        failing_import = machine.pop("failing_import", "")
        variables = amdsmi_binding.environment(tmp_path, gpus, errors=machine, failing_import=failing_import)
        return InventoryReader(os.environ | quiet_nvidia | variables, 20.0, tmp_path / "pci").read()

    return read


def test_each_gpu_is_described_by_its_driver(amd: Reading) -> None:
    found = amd(MI300X, RX7900)

    assert found.errors == ()
    assert found.gpus[0] == Gpu(
        index=0,
        backend="hip",
        uuid="6eff74a1-0000-1000-80a7-000000000000",
        model="AMD Instinct MI300X",
        driver_version="6.10.5",
        arch="gfx942",
        warp_size=64,
        memory_mib=196592,
        pci_address="0000:43:00.0",
    )
    assert (found.gpus[1].arch, found.gpus[1].warp_size) == ("gfx1100", 32)


def test_the_architecture_is_the_processor_and_not_a_guess_from_the_name(amd: Reading) -> None:
    gpu = amd({**MI300X, "market_name": "AMD Instinct MI210", "target_graphics_version": "gfx90a:sramecc+:xnack-"})

    assert (gpu.gpus[0].arch, gpu.gpus[0].warp_size) == ("gfx90a", 64)


@pytest.mark.parametrize(
    ("arch", "size"),
    [("gfx906", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx950", 64), ("gfx1030", 32), ("gfx1201", 32), ("gfx1250", 32),
     ("", 0), ("MI300X", 0)],
)  # fmt: skip
def test_threads_run_in_groups_of_64_up_to_gfx9_and_of_32_from_gfx10(arch: str, size: int) -> None:
    assert warp_size(arch) == size


@pytest.mark.parametrize("said", [None, "", "N/A", "gfx", "MI300X", "gfx90402x", 942])
def test_a_gpu_whose_architecture_is_not_known_is_unusable(amd: Reading, said: object) -> None:
    described = {key: value for key, value in MI300X.items() if key != "target_graphics_version"}
    if said is not None:
        described["target_graphics_version"] = said

    gpu = amd(described, MI300X).gpus[0]

    assert gpu.fatal_fault is not None
    assert (gpu.fatal_fault.call, gpu.fatal_fault.code, gpu.arch) == ("amdsmi_get_gpu_asic_info", "UNREADABLE", "")
    assert preflight.check([NormalizedTarget("hip", "gfx942", 64)], [gpu]).fits is False


@pytest.fixture(scope="module")
def every_error(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    """Return one reading: each call of a GPU of its own fails with each error; the last GPU is healthy."""
    root = tmp_path_factory.mktemp("amd")
    (root / "libnvidia-ml.so.1").write_bytes(b"")
    broken = [{**MI300X, "errors": {call: error}} for error in ERRORS for call in CALLS]
    variables = amdsmi_binding.environment(root, [*broken, RX7900]) | {"LD_LIBRARY_PATH": str(root)}
    return InventoryReader(os.environ | variables, 20.0, root / "pci").read()


@pytest.mark.parametrize("error", ERRORS)
def test_any_answer_of_one_call_costs_only_its_field(every_error: Inventory, error: str) -> None:
    first = ERRORS.index(error) * len(CALLS)
    found = every_error.gpus[first : first + len(CALLS)]

    assert every_error.errors == ()
    assert [gpu.index for gpu in found] == list(range(first, first + len(CALLS)))
    code = error.removeprefix("AMDSMI_STATUS_") if error.startswith("AMDSMI") else "UNREADABLE"
    for call, gpu in zip(CALLS, found, strict=True):
        assert [(fault.call, fault.code) for fault in gpu.faults] == [(call, code)]
        assert (gpu.fatal_fault is not None) == (call == "amdsmi_get_gpu_asic_info")
    assert every_error.gpus[-1].faults == ()


def test_gpus_that_cannot_be_listed_are_not_no_gpus(amd: Reading) -> None:
    found = amd(MI300X, amdsmi_get_processor_handles="AMDSMI_STATUS_IO")

    assert found == Inventory(errors=("amdsmi_get_processor_handles: Io",))
    assert found.unreadable


def test_a_library_that_does_not_start_beside_its_driver_is_an_error(amd: Reading) -> None:
    found = amd(MI300X, amdsmi_init="AMDSMI_STATUS_INIT_ERROR")

    assert found.errors == ("amdsmi_init: INIT_ERROR: Init error",)


def test_a_binding_without_its_library_is_an_error_beside_its_driver(amd: Reading) -> None:
    found = amd(MI300X, failing_import="OSError")

    assert found.errors == ("amdsmi cannot be imported: libamd_smi.so: cannot open shared object file",)


@pytest.mark.parametrize("machine", [{"failing_import": "OSError"}, {"amdsmi_init": "AMDSMI_STATUS_DRIVER_NOT_LOADED"}])
def test_an_installed_binding_on_a_machine_without_such_gpus_is_quiet(amd: Reading, machine: dict[str, str]) -> None:
    assert amd(held_by=None, **machine) == Inventory()


def test_without_the_binding_there_are_no_amd_gpus_and_no_error(tmp_path: Path, quiet_nvidia: dict[str, str]) -> None:
    pci_devices.plug(tmp_path / "pci", pci_devices.AMD, driver="amdgpu")

    assert InventoryReader(os.environ | quiet_nvidia, 20.0, tmp_path / "pci").read() == Inventory()


def test_a_library_that_does_not_end_well_has_still_answered(amd: Reading) -> None:
    found = amd(MI300X, amdsmi_shut_down="AMDSMI_STATUS_IO")

    assert (len(found.gpus), found.errors) == (1, ())


def test_two_vendors_share_no_index_and_nvidia_has_the_indices_of_nvml(nvml: Path, tmp_path: Path) -> None:
    variables = nvml_library.environment(tmp_path, library=nvml, gpus=[H100, A100])
    variables |= amdsmi_binding.environment(tmp_path, [MI300X, MI300X])

    found = InventoryReader(os.environ | variables, 20.0, tmp_path / "pci").read()

    assert [(gpu.index, gpu.backend, gpu.arch) for gpu in found.gpus] == [
        (0, "cuda", "90"),
        (1, "cuda", "80"),
        (2, "hip", "gfx942"),
        (3, "hip", "gfx942"),
    ]
    assert [(group.ids, group.backend) for group in groups(found.gpus)] == [
        ([0], "cuda"),
        ([1], "cuda"),
        ([2, 3], "hip"),
    ]
    verdict = preflight.check([NormalizedTarget("hip", "gfx942", 64)], found.gpus)
    assert verdict.compatible[0].ids == [2, 3]


def test_an_nvml_that_crashes_is_an_error_of_the_reading(nvml: Path, tmp_path: Path) -> None:
    variables = nvml_library.environment(tmp_path, library=nvml, gpus=[H100], errors={"nvmlInit": "CRASH"})
    variables |= amdsmi_binding.environment(tmp_path, [MI300X])

    found = InventoryReader(os.environ | variables, 20.0, tmp_path / "pci").read()

    assert found.errors == ("GPUs cannot be read: the probe ended with -11",)


def test_an_nvml_that_does_not_start_hides_no_gpu_of_amd(nvml: Path, tmp_path: Path) -> None:
    pci_devices.plug(tmp_path / "pci", pci_devices.NVIDIA, driver="nvidia")
    variables = nvml_library.environment(
        tmp_path, library=nvml, gpus=[H100], errors={"nvmlInit": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}
    )
    variables |= amdsmi_binding.environment(tmp_path, [MI300X])

    found = InventoryReader(os.environ | variables, 20.0, tmp_path / "pci").read()

    assert [gpu.backend for gpu in found.gpus] == ["hip"]
    assert found.errors == ("nvmlInit: RM has detected an NVML/RM version mismatch.",)
