"""`gkm node detect`: it shows the GPUs of this machine, and a GPU or driver with a fault is an error."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.fakes import nvml_library
from support.fakes.nvml_library import H100, Gpu
from support.peers import require

LOST: Gpu = {**H100, "errors": {"nvmlDeviceGetName": "NVML_ERROR_GPU_IS_LOST"}}
WITHOUT_ARCH: Gpu = {**H100, "errors": {"nvmlDeviceGetCudaComputeCapability": "NVML_ERROR_UNKNOWN"}}
MISMATCH = {"nvmlInit": "NVML_ERROR_LIB_RM_VERSION_MISMATCH"}


def machine(directory: Path, *gpus: Gpu, errors: Mapping[str, str] | None = None) -> dict[str, str]:
    require.gcc()
    library = nvml_library.build()
    return nvml_library.environment(directory, library=library, gpus=gpus, errors=errors)


def test_a_machine_without_fault_is_shown(tmp_path: Path) -> None:
    done = gkm("node", "detect", "-o", "json", env=machine(tmp_path, H100, H100))
    shown = json.loads(done.stdout)
    assert (done.returncode, done.stderr, shown["errors"]) == (0, "", [])
    assert [group["ids"] for group in shown["gpus"]] == [[0, 1]]


def test_a_machine_without_gpus_is_no_fault(tmp_path: Path) -> None:
    done = gkm("node", "detect", env=machine(tmp_path))
    assert (done.returncode, done.stdout) == (0, "this machine has no GPU\n")


@pytest.mark.parametrize(
    ("gpus", "errors", "fault"),
    [
        ((LOST, H100), None, "GPU 0: this GPU cannot be used (nvmlDeviceGetName: GPU is lost)"),
        (
            (H100, WITHOUT_ARCH, WITHOUT_ARCH),
            None,
            "GPUs 1-2: this GPU cannot be used (nvmlDeviceGetCudaComputeCapability: Unknown Error)",
        ),
        ((H100,), MISMATCH, "nvmlInit: RM has detected an NVML/RM version mismatch."),
    ],
)
def test_a_fault_is_named_and_the_exit_code_is_1(
    tmp_path: Path, gpus: tuple[Gpu, ...], errors: dict[str, str] | None, fault: str
) -> None:
    found = machine(tmp_path, *gpus, errors=errors)
    for_programs = gkm("node", "detect", "-o", "json", env=found)
    assert (for_programs.returncode, json.loads(for_programs.stdout)["errors"]) == (1, [fault])
    for_people = gkm("node", "detect", env=found)
    assert (for_people.returncode, "this machine has no GPU" in for_people.stdout) == (1, False)
    assert for_people.stderr.startswith("error: ")
    assert fault in for_people.stderr


@pytest.mark.parametrize(("gpus", "errors"), [((LOST,), None), ((WITHOUT_ARCH,), None), ((H100,), MISMATCH)])
def test_the_fault_is_the_one_that_cache_check_names(
    image: str, tmp_path: Path, gpus: tuple[Gpu, ...], errors: dict[str, str] | None
) -> None:
    found = machine(tmp_path, *gpus, errors=errors)
    detected = gkm("node", "detect", "-o", "json", env=found)
    checked = gkm("cache", "check", image, "--plain-http", "-o", "json", env=found)
    (fault,) = json.loads(detected.stdout)["errors"]
    assert checked.returncode != 0
    assert fault in (json.loads(checked.stdout)["message"] if checked.stdout else checked.stderr)


def test_a_file_of_a_machine_with_a_lost_gpu_fits_no_cache_on_that_gpu(image: str, tmp_path: Path) -> None:
    detected = gkm("node", "detect", "-o", "json", env=machine(tmp_path, LOST, H100))
    (tmp_path / "gpus.json").write_text(detected.stdout)
    checked = gkm("cache", "check", image, "--plain-http", "-o", "json", "--gpus", tmp_path / "gpus.json")
    verdict = json.loads(checked.stdout)
    assert (verdict["compatibleGPUs"], verdict["incompatibleGPUs"][0]["reason"]) == ([{"ids": [1]}], "GPULost")
