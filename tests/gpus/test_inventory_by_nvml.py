"""Reading GPUs: the real binding in the real child process, over a library that answers what a test says."""

import json
import os
import sys
from pathlib import Path

import msgspec
import pytest
from fakes import nvml_library
from fakes.nvml_library import A100, GB200, H100
from gkm.gpus import inventory
from gkm.gpus.inventory import Reader
from gkm.gpus.nvidia import cuda_version
from gkm.gpus.values import Fabric, Gpu, Inventory, printable
from gpus.conftest import Reading


def test_each_gpu_is_described_by_what_its_driver_says(reading: Reading) -> None:
    found = reading(H100, A100)

    assert found.errors == ()
    assert found.gpus[0] == Gpu(
        index=0,
        backend="cuda",
        uuid="GPU-00000000-0000-4000-8000-000000000000",
        model="NVIDIA H100 80GB HBM3",
        driver_version="570.86.15",
        cuda_driver_version="12.8",
        arch="90",
        warp_size=32,
        memory_mib=81559,
        pci_address="00000000:01:00.0",
    )
    assert (found.gpus[1].arch, found.gpus[1].index) == ("80", 1)
    assert found.driver_version == "570.86.15"


def test_an_architecture_of_three_digits_is_read(reading: Reading) -> None:
    assert reading(GB200).gpus[0].arch == "100"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_fabric_is_read_by_the_newest_structure_that_the_driver_knows(reading: Reading, version: int) -> None:
    gpu = {**GB200, "fabric": {**GB200["fabric"], "version": version, "health_mask": 0x11AA, "health_summary": 1}}

    fabric = reading(gpu).gpus[0].fabric

    assert fabric is not None
    assert fabric == Fabric(
        cluster_uuid="7b968a6d-c8aa-45e1-9e07-e1e51be99c31",
        clique_id=1,
        state="Completed",
        status="Success",
        health="" if version == 1 else "Healthy",
    )


def test_a_failed_registration_names_what_nvml_says(reading: Reading) -> None:
    fabric = reading({**GB200, "fabric": {**GB200["fabric"], "status": 23}}).gpus[0].fabric

    assert fabric is not None
    assert fabric.status == "Insufficient Resources"


def test_a_gpu_without_fabric_has_none_and_no_fault(reading: Reading) -> None:
    gpu = reading(H100).gpus[0]

    assert gpu.fabric is None
    assert gpu.faults == ()


def test_a_gpu_in_mig_mode_says_so(reading: Reading) -> None:
    assert [gpu.mig for gpu in reading({**H100, "mig": 1}, H100, {**H100, "mig": None}).gpus] == [True, False, False]


def test_a_lost_gpu_is_reported_beside_its_healthy_neighbours(reading: Reading) -> None:
    found = reading(H100, {**H100, "errors": {"nvmlDeviceGetHandleByIndex": "NVML_ERROR_GPU_IS_LOST"}}, A100)

    assert [gpu.unusable is None for gpu in found.gpus] == [True, False, True]
    fault = found.gpus[1].unusable
    assert fault is not None
    assert (fault.call, fault.code, fault.message) == ("nvmlDeviceGetHandleByIndex", "GPU_IS_LOST", "GPU is lost")


PER_GPU = [
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuFabricInfo",
]
ERRORS = [
    "UNINITIALIZED", "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND", "INSUFFICIENT_SIZE",
    "INSUFFICIENT_POWER", "DRIVER_NOT_LOADED", "TIMEOUT", "IRQ_ISSUE", "LIBRARY_NOT_FOUND", "FUNCTION_NOT_FOUND",
    "CORRUPTED_INFOROM", "GPU_IS_LOST", "RESET_REQUIRED", "OPERATING_SYSTEM", "LIB_RM_VERSION_MISMATCH", "IN_USE",
    "MEMORY", "NO_DATA", "ARGUMENT_VERSION_MISMATCH", "NOT_READY", "GPU_NOT_FOUND", "INVALID_STATE", "UNKNOWN",
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_one_call_answers_costs_no_more_than_its_own_field(reading: Reading, error: str) -> None:
    broken = [{**H100, "errors": {call: f"NVML_ERROR_{error}"}} for call in PER_GPU]

    found = reading(*broken, A100)

    assert len(found.gpus) == len(PER_GPU) + 1
    assert found.gpus[-1].unusable is None
    for call, gpu in zip(PER_GPU, found.gpus, strict=False):
        identity_unknown = call in {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetCudaComputeCapability"}
        fatal = identity_unknown or error in {"GPU_IS_LOST", "RESET_REQUIRED"}
        assert (gpu.unusable is not None) == fatal, (call, gpu)
        assert gpu.arch == ("" if identity_unknown else "90")


@pytest.mark.parametrize("call", ["nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"])
def test_a_system_call_that_fails_is_an_error_and_hides_no_gpu(reading: Reading, call: str) -> None:
    found = reading(H100, errors={call: "NVML_ERROR_UNKNOWN"})

    assert found.errors == (f"{call}: Unknown Error",)
    assert found.gpus[0].arch == "90"
    assert not found.unreadable


def test_a_driver_that_is_not_loaded_is_an_error_and_not_a_machine_without_gpus(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "NVML_ERROR_DRIVER_NOT_LOADED"})

    assert found == Inventory(errors=("nvmlInit: Driver Not Loaded",))
    assert found.unreadable


def test_a_library_and_driver_that_do_not_match_are_named(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"})

    assert found.errors == ("nvmlInit: RM has detected an NVML/RM version mismatch.",)


def test_no_library_is_a_quiet_machine_without_gpus(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}

    found = Reader(environment | {"LD_LIBRARY_PATH": str(tmp_path)}).read()

    if found.gpus:
        pytest.skip("this machine has GPUs and their library")
    assert found == Inventory()
    assert not found.unreadable


def test_no_gpu_behind_a_loaded_driver_is_quiet_too(reading: Reading) -> None:
    found = reading()

    assert found == Inventory()


def test_names_that_are_no_text_are_a_fault_and_not_a_crash(reading: Reading) -> None:
    found = reading({**H100, "name": "\xff\xfe"}, {**H100, "name": "a\nb\x1b[31m"}, {**H100, "name": "x" * 95})

    assert [gpu.model for gpu in found.gpus] == ["", "a?b?[31m", "x" * 95]
    assert found.gpus[0].faults[0].code == "UNREADABLE"
    assert all(gpu.unusable is None for gpu in found.gpus)


def test_a_name_too_long_for_the_binding_is_a_fault(reading: Reading) -> None:
    gpu = reading({**H100, "name": "x" * 200}).gpus[0]

    assert (gpu.model, gpu.faults[0].code) == ("", "INSUFFICIENT_SIZE")


def test_a_new_driver_is_seen_by_the_next_reading(nvml: Path, tmp_path: Path) -> None:
    variables = nvml_library.environment(tmp_path, library=nvml, gpus=[H100], driver_version="550.54.15")
    reader = Reader(os.environ | variables)
    before = reader.read()

    nvml_library.describe(tmp_path / "nvml.json", gpus=[H100, A100], driver_version="570.86.15")
    after = reader.read()

    assert (before.driver_version, len(before.gpus)) == ("550.54.15", 1)
    assert (after.driver_version, len(after.gpus)) == ("570.86.15", 2)


def test_the_reading_process_never_loads_the_driver_itself(reading: Reading) -> None:
    reading(H100)

    assert "libnvidia-ml" not in Path("/proc/self/maps").read_text()


def test_a_driver_that_hangs_is_given_up(reading: Reading) -> None:
    found = reading(H100, errors={"nvmlInit": "HANG"}, timeout=0.3)

    assert found.unreadable
    assert "no answer within" in found.errors[0]


def test_a_driver_that_crashes_costs_its_own_process_only(reading: Reading) -> None:
    found = reading({**H100, "errors": {"nvmlDeviceGetName": "CRASH"}})

    assert found.errors == ("GPUs cannot be read: the probe ended with -11",)


def test_an_interpreter_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert Reader().read().errors == ("GPUs cannot be read: the probe did not start: No such file or directory",)


def test_while_a_child_cannot_be_killed_no_second_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        returncode = None

        def poll(self) -> None:
            return None

    reader = Reader()
    monkeypatch.setattr(reader, "_stuck", Stuck())

    assert reader.read().errors == ("GPUs cannot be read: the previous reading still hangs in the driver",)


GPU = {"index": 0, "backend": "cuda"}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{",
        json.dumps({"gpus": [{**GPU, "index": -1}]}).encode(),
        json.dumps({"gpus": [{**GPU, "index": 1 << 40}]}).encode(),
        json.dumps({"gpus": [{**GPU, "model": "a\nb"}]}).encode(),
        json.dumps({"gpus": [{**GPU, "model": "x" * 1000}]}).encode(),
        json.dumps({"gpus": [{**GPU, "memory_mib": "much"}]}).encode(),
        json.dumps({"gpus": [GPU, GPU]}).encode(),
        json.dumps({"gpus": [{**GPU, "index": index % 1024} for index in range(2000)]}).encode(),
        json.dumps({"errors": ["x"] * 100}).encode(),
        b"[" * 100_000,
    ],
)
def test_an_answer_that_no_probe_of_ours_gives_is_refused(answer: bytes) -> None:
    found = inventory.decode(answer)

    assert found.unreadable
    assert len(found.errors[0]) <= 256


def test_an_answer_survives_the_way_through_json() -> None:
    whole = Inventory((Gpu(3, "cuda", fabric=Fabric("a", 1, "b", "c", "d")),), ("error",))

    assert inventory.decode(msgspec.json.encode(whole)) == whole


def test_too_much_output_is_cut_off(monkeypatch: pytest.MonkeyPatch, reading: Reading) -> None:
    monkeypatch.setattr(inventory, "MAX_OUTPUT", 10)

    assert "beyond 10 bytes" in reading(H100).errors[0]


def test_cuda_versions_are_written_as_people_do() -> None:
    assert [cuda_version(number) for number in (12080, 11040, 0, -1)] == ["12.8", "11.4", "", ""]


def test_a_text_is_made_printable_and_bounded() -> None:
    assert printable("a\x00é\n") == "a???"
    assert printable("x" * 300) == "x" * 253 + "..."
