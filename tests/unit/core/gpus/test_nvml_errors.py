"""Every NVML call of the product, failing with every error of NVML, through the real binding."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest
from gkm.api.errors import Reason
from gkm.gpus import nvidia, preflight
from gkm.gpus.groups import groups
from gkm.gpus.targets import NormalizedTarget
from gkm.gpus.values import Inventory
from support.fakes import nvml_library, pci_devices
from support.fakes.nvml_library import A100, GB200, H100
from support.gpus import nvml_readings
from support.gpus.inventories import Reading
from support.host.waiting import scaled

ERRORS = sorted(name.removeprefix("NVML_ERROR_") for name in vars(pynvml) if name.startswith("NVML_ERROR_"))
FATAL = {"GPU_IS_LOST", "RESET_REQUIRED", "INSUFFICIENT_POWER", "GPU_NOT_FOUND"}
ABSENT = {"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT"}
IDENTITY = {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCudaComputeCapability"}
OPTIONAL = {
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetPowerState",
}
PER_GPU = sorted({*IDENTITY, *OPTIONAL, "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"})
SYSTEM = [
    "nvmlInit",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlDeviceGetCount",
    "nvmlShutdown",
]  # fmt: skip
FULL = {**GB200, "mig": 0, "power_state": 0}
WANTED = [NormalizedTarget("cuda", "100", 32), NormalizedTarget("cuda", "80", 32)]


def failing(call: str, error: str) -> dict[str, Any]:
    return {"errors": {call: f"NVML_ERROR_{error}"}}


def machines_of(error: str) -> dict[str, dict[str, Any]]:
    """Return the machines for one error: each call in turn fails with it."""
    return {
        "gpu": nvml_library.described(gpus=[*({**FULL, **failing(call, error)} for call in PER_GPU), A100]),
        **{call: nvml_library.described(gpus=[H100], errors={call: f"NVML_ERROR_{error}"}) for call in SYSTEM},
    }


@dataclass(frozen=True)
class Product:
    readings: Mapping[tuple[str, str], Inventory]

    def of(self, error: str, machine: str) -> Inventory:
        return self.readings[error, machine]


@pytest.fixture(scope="module")
def product(nvml: Path, tmp_path_factory: pytest.TempPathFactory) -> Product:
    root = tmp_path_factory.mktemp("product")
    pci_devices.plug(root / "pci", pci_devices.NVIDIA, driver="nvidia")
    machines = {(error, name): machine for error in ERRORS for name, machine in machines_of(error).items()}
    (root / "machines.json").write_text(json.dumps(list(machines.values())))
    variables = nvml_library.environment(root, library=nvml, gpus=[])
    result = subprocess.run(
        [sys.executable, nvml_readings.__file__, root / "machines.json", root / "pci"],
        env=os.environ | variables,
        capture_output=True,
        timeout=scaled(120),
        check=True,
    )
    readings = msgspec.json.decode(result.stdout, type=list[Inventory])
    return Product(dict(zip(machines, readings, strict=True)))


@pytest.mark.parametrize("error", ERRORS)
def test_any_answer_about_a_gpu_costs_only_its_field(product: Product, error: str) -> None:
    found = product.of(error, "gpu")

    assert found.errors == ()
    assert [gpu.index for gpu in found.gpus] == list(range(len(PER_GPU) + 1))
    assert found.gpus[-1].fatal_fault is None
    for call, gpu in zip(PER_GPU, found.gpus, strict=False):
        forgiven = call in OPTIONAL and error in ABSENT
        assert [(fault.call, fault.code) for fault in gpu.faults] == ([] if forgiven else [(call, error)])
        assert (gpu.fatal_fault is not None) == (call in IDENTITY or error in FATAL), call
        assert gpu.arch == ("" if call in IDENTITY else "100")
        assert (gpu.model == "") == (call in {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName"})


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("machine", ["gpu", *SYSTEM])
def test_no_error_makes_a_gpu_compatible_that_cannot_be_used(product: Product, error: str, machine: str) -> None:
    found = product.of(error, machine)

    verdict = preflight.check(WANTED, found.gpus)

    fitting = {index for group in verdict.compatible for index in group.ids}
    known = {gpu.index for gpu in found.gpus if not gpu.fatal_fault and gpu.arch in {"100", "80"}}
    assert fitting == known
    lost = {index for miss in verdict.incompatible if miss.reason == Reason.GPU_LOST for index in miss.ids}
    assert lost == {gpu.index for gpu in found.gpus if gpu.fatal_fault}
    assert {index for group in groups(found.gpus) if group.arch == "" for index in group.ids} == lost


@pytest.mark.parametrize("error", ERRORS)
def test_an_nvml_that_does_not_start_is_never_a_machine_without_gpus(product: Product, error: str) -> None:
    found = product.of(error, "nvmlInit")

    assert (found.gpus, len(found.errors)) == ((), 1)
    assert found.unreadable
    assert found.errors[0].startswith("nvmlInit: ")


@pytest.mark.parametrize("error", ERRORS)
def test_gpus_that_cannot_be_counted_are_not_no_gpus(product: Product, error: str) -> None:
    found = product.of(error, "nvmlDeviceGetCount")

    assert found.gpus == ()
    assert found.unreadable
    assert found.errors[0].startswith("nvmlDeviceGetCount: ")


@pytest.mark.parametrize("error", ERRORS)
def test_a_system_call_that_fails_is_an_error_and_hides_no_gpu(product: Product, error: str) -> None:
    driver = product.of(error, "nvmlSystemGetDriverVersion")
    cuda = product.of(error, "nvmlSystemGetCudaDriverVersion")
    ending = product.of(error, "nvmlShutdown")

    assert [found.gpus[0].arch for found in (driver, cuda, ending)] == ["90", "90", "90"]
    assert [found.unreadable for found in (driver, cuda, ending)] == [False, False, False]
    assert (driver.driver_version, len(driver.errors)) == ("", 1)
    assert (cuda.gpus[0].cuda_driver_version, len(cuda.errors)) == ("", 0 if error in ABSENT else 1)
    assert ending.errors == ()


def test_the_errors_are_all_that_the_binding_knows_and_ours_are_among_them() -> None:
    assert len(ERRORS) >= 31
    assert {*FATAL, *ABSENT} <= set(ERRORS)
    assert nvidia.ABSENT == ABSENT


@pytest.mark.parametrize("held_by", [None, "vfio-pci", "nouveau"])
@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND"])
def test_no_driver_where_it_has_nothing_to_drive_is_quiet(reading: Reading, error: str, held_by: str | None) -> None:
    found = reading(H100, errors={"nvmlInit": f"NVML_ERROR_{error}"}, held_by=held_by)

    assert found == Inventory()


@pytest.mark.parametrize("held_by", ["", "nvidia"])
def test_a_driver_that_is_not_loaded_for_the_gpus_on_the_bus_is_an_error(reading: Reading, held_by: str) -> None:
    found = reading(H100, errors={"nvmlInit": "NVML_ERROR_DRIVER_NOT_LOADED"}, held_by=held_by)

    assert found == Inventory(errors=("nvmlInit: Driver Not Loaded",))


def test_an_invisible_driver_library_is_an_error_with_a_hint(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "NVML_ERROR_LIBRARY_NOT_FOUND"}, held_by="nvidia")

    (error,) = found.errors
    assert error.startswith("nvmlInit: the NVIDIA driver holds GPUs here, but its library libnvidia-ml.so.1")
    assert error.endswith("run the container with runtimeClassName nvidia, or set agent.driverRoot")


def test_gpus_without_driver_and_library_are_no_error(reading: Reading) -> None:
    assert reading(H100, errors={"nvmlInit": "NVML_ERROR_LIBRARY_NOT_FOUND"}, held_by="") == Inventory()


def test_a_library_and_driver_that_do_not_match_are_named(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}, held_by=None)

    assert found.errors == ("nvmlInit: RM has detected an NVML/RM version mismatch.",)


def test_a_machine_without_the_library_is_quiet(tmp_path: Path) -> None:
    # A file that is no library stands before any that this machine may have.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    variables = {"LD_LIBRARY_PATH": str(tmp_path), nvml_readings.DESCRIPTION: str(tmp_path / "none.json")}
    (tmp_path / "machines.json").write_text("[{}]")

    result = subprocess.run(
        [sys.executable, nvml_readings.__file__, tmp_path / "machines.json", tmp_path / "pci"],
        env=os.environ | variables,
        capture_output=True,
        timeout=scaled(60),
        check=True,
    )

    assert msgspec.json.decode(result.stdout, type=list[Inventory]) == [Inventory()]


def test_no_gpu_behind_a_loaded_driver_is_quiet_too(reading: Reading) -> None:
    assert reading() == Inventory()
