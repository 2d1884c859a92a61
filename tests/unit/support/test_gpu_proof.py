"""The proof on a GPU (`make gpu`): what it compares, and what it calls a fault."""

import sys
from pathlib import Path

import pytest
from gkm.gpus.values import Gpu, Inventory

sys.path.append(str(Path(__file__).resolve().parents[3] / "bench"))

from gpu_proof.detection import QUERY, FieldComparison, compare
from gpu_proof.outcome import MOUNTED, READ_ONLY, ProgramRun
from gpu_proof.refusals import ImageRefusal
from gpu_proof.report import REHEARSAL, ProofReport

GROUP = {
    "ids": [0],
    "gpuType": "nvidia-h100-80gb-hbm3",
    "arch": "90",
    "driverVersion": "570.86.15",
    "memoryMiB": 81559,
    "fabric": {"state": "Completed", "status": "Success"},
}
READING = Inventory((Gpu(0, "cuda", uuid="GPU-1", pci_address="0000:01:00.0"),))
QUERIED = {
    "index": "0",
    "name": "NVIDIA H100 80GB HBM3",
    "compute_cap": "9.0",
    "driver_version": "570.86.15",
    "memory.total": "81559",
    "uuid": "GPU-1",
    "pci.bus_id": "00000000:01:00.0",
    "mig.mode.current": "Disabled",
    "fabric.state": "Completed",
    "fabric.status": "Success",
}


def compared(**changed: str) -> list[FieldComparison]:
    queried = ", ".join({**QUERIED, **changed}[field] for field in QUERY)
    return compare({"gpus": [GROUP]}, READING, queried + "\n")


def test_equal_machines_agree_in_every_field() -> None:
    found = compared()
    assert [each.field for each in found] == list(QUERY.values())[1:]
    assert all(each.agrees for each in found)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("name", "NVIDIA H200"),
        ("compute_cap", "10.0"),
        ("memory.total", "1"),
        ("uuid", "GPU-2"),
        ("pci.bus_id", "00000000:02:00.0"),
        ("mig.mode.current", "Enabled"),
        ("fabric.state", "In Progress"),
    ],
)
def test_a_field_that_differs_is_found(field: str, text: str) -> None:
    assert [each.field for each in compared(**{field: text}) if not each.agrees] == [QUERY[field]]


def test_a_field_that_nvidia_smi_does_not_know_is_no_difference() -> None:
    assert all(each.agrees for each in compared(**{"fabric.state": "[N/A]", "mig.mode.current": "[N/A]"}))


def test_a_gpu_that_one_program_lacks_is_a_difference() -> None:
    queried = "".join(", ".join({**QUERIED, "index": index}[field] for field in QUERY) + "\n" for index in "01")
    (found,) = [each for each in compare({"gpus": [GROUP]}, READING, queried) if not each.agrees]
    assert (found.gpu, found.field, found.gkm, found.nvidia_smi) == (1, "present", "False", "True")


def test_without_nvidia_smi_nothing_is_compared() -> None:
    found = compare({"gpus": [GROUP]}, READING, None)
    assert {each.nvidia_smi for each in found} == {None}
    assert all(each.agrees for each in found)


def run(way: str, **changed: object) -> ProgramRun:
    printed = {"device": "d", "seconds": 1.0, "graph_hits": 2, "kernels_compiled": 0, "added": [], **changed}
    return ProgramRun.of("model", way, printed)


@pytest.mark.parametrize("way", [MOUNTED, READ_ONLY])
def test_a_mounted_cache_that_only_hits_is_no_fault(way: str) -> None:
    assert run(way, added=["locks/x.lock", "ab/x.so.load_ok"]).fault == ""


@pytest.mark.parametrize("way", [MOUNTED, READ_ONLY])
@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"kernels_compiled": 1}, "1 graphs or kernels were compiled"),
        ({"graph_misses": 2}, "2 graphs or kernels were compiled"),
        ({"autograd_misses": 1}, "1 graphs or kernels were compiled"),
        ({"added": ["triton/0/K/add.cubin"]}, "1 compiled files were added, such as triton/0/K/add.cubin"),
        ({"graph_hits": 0}, "nothing was found in the cache"),
    ],
)
def test_a_mounted_cache_that_compiles_is_a_fault(way: str, changed: dict[str, object], fault: str) -> None:
    assert run(way, **changed).fault == f"model, {way}: {fault}"


def test_an_empty_cache_may_compile() -> None:
    assert run("empty", graph_hits=0, graph_misses=2, added=["a.so"]).fault == ""


def test_a_program_that_fails_is_a_fault_except_on_a_read_only_mount() -> None:
    assert ProgramRun("model", MOUNTED, failure="exit code 1: OSError").fault
    assert ProgramRun("model", "empty", failure="exit code 1: OSError").fault
    assert ProgramRun("model", READ_ONLY, failure="exit code 1: OSError").fault == ""


@pytest.mark.parametrize(
    ("exit_code", "why", "ran", "is_fault"),
    [
        (3, "this GPU is sm_80", False, False),
        (3, "no signature was found", False, True),
        (0, "", False, True),
        (1, "this GPU is sm_80", False, True),
        (3, "this GPU is sm_80", True, True),
    ],
)
def test_an_image_that_is_not_refused_is_a_fault(exit_code: int, why: str, *, ran: bool, is_fault: bool) -> None:
    refusal = ImageRefusal("for another architecture", exit_code, 3, "this GPU is sm_", why, ran)
    assert bool(refusal.fault) is is_fault


def test_the_report_states_faults_and_that_there_was_no_gpu() -> None:
    report = ProofReport(is_rehearsal=True, machine={"GPUs": "1"}, fields=compared(uuid="GPU-2"))
    report.runs.append(run(MOUNTED, kernels_compiled=3))
    page = report.markdown()
    assert REHEARSAL in page
    assert len(report.faults) == len(report.document()["faults"]) == 2
    assert all(fault in page for fault in report.faults)
    assert REHEARSAL not in ProofReport(is_rehearsal=False, machine={}).markdown()
