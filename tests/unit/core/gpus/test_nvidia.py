"""Reading GPUs: the real binding in the real child process, over a library with chosen answers."""

from typing import Any

import pynvml
import pytest
from gkm.gpus.groups import groups
from gkm.gpus.nvidia import cuda_version
from gkm.gpus.values import Gpu, GpuFabricInfo, LinkErrors
from support.fakes.nvml_library import A100, GB200, H100, MIG_A100
from support.gpus.inventories import Reading


def test_each_gpu_is_described_by_its_driver(reading: Reading) -> None:
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
        pci_address="0000:01:00.0",
    )
    assert (found.gpus[1].arch, found.gpus[1].index) == ("80", 1)
    assert found.driver_version == "570.86.15"


def test_an_architecture_of_three_digits_is_read(reading: Reading) -> None:
    assert reading(GB200).gpus[0].arch == "100"


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_fabric_is_read_by_the_newest_structure_that_the_driver_knows(reading: Reading, version: int) -> None:
    gpu = {**GB200, "fabric": {**GB200["fabric"], "version": version, "health_mask": 0x11AA, "health_summary": 1}}

    fabric = reading(gpu).gpus[0].fabric

    assert fabric is not None
    assert fabric == GpuFabricInfo(
        cluster_uuid="7b968a6d-c8aa-45e1-9e07-e1e51be99c31",
        clique_id=1,
        state="Completed",
        status="Success",
        health="" if version == 1 else "Healthy",
        health_mask=0 if version == 1 else 0x11AA,
        health_summary="Healthy" if version >= 3 else "",
    )


def clique(kind: str, number: int) -> dict[str, int]:
    return {"type": getattr(pynvml, f"NVML_GPU_FABRIC_CLIQUE_TYPE_{kind}"), "id": number}


def with_cliques(*cliques: dict[str, int], **fabric: object) -> dict[str, Any]:
    return {**GB200, "fabric": {**GB200["fabric"], "version": 4, "cliques": cliques, **fabric}}


def test_the_clique_of_a_gpu_is_the_first_for_unicast_pointers_as_in_older_structures(reading: Reading) -> None:
    """nvml.h, nvmlGpuFabricInfo_v4_t: the clique of v3 is the first entry of that type."""
    gpu = with_cliques(
        clique("MULTICAST_POINTER", 7),
        clique("UNICAST_POINTER", 4),
        clique("UNICAST_POINTER", 5),
        clique("UNICAST_LOGICAL_ENDPOINT", 9),
    )

    fabric = reading(gpu).gpus[0].fabric

    assert fabric is not None
    assert (fabric.cluster_uuid, fabric.clique_id) == ("7b968a6d-c8aa-45e1-9e07-e1e51be99c31", 4)


@pytest.mark.parametrize("cliques", [(), (clique("MULTICAST_POINTER", 7), clique("UNICAST_LOGICAL_ENDPOINT", 1))])
def test_a_gpu_without_a_clique_for_unicast_pointers_names_no_domain(
    reading: Reading, cliques: tuple[dict[str, int], ...]
) -> None:
    fabric = reading(with_cliques(*cliques)).gpus[0].fabric

    assert fabric is not None
    assert (fabric.state, fabric.cluster_uuid, fabric.clique_id) == ("Completed", "", 0)


def test_a_driver_that_counts_more_cliques_than_the_structure_holds_is_read_to_its_end(reading: Reading) -> None:
    others = [clique("MULTICAST_POINTER", number) for number in range(63)]
    gpu = with_cliques(*others, clique("UNICAST_POINTER", 2), clique_count=1 << 31)

    fabric = reading(gpu).gpus[0].fabric

    assert fabric is not None
    assert fabric.clique_id == 2


def test_a_failed_registration_has_the_text_of_nvml(reading: Reading) -> None:
    fabric = reading({**GB200, "fabric": {**GB200["fabric"], "status": 23}}).gpus[0].fabric

    assert fabric is not None
    assert fabric.status == "Insufficient Resources"


def test_a_gpu_without_fabric_has_none_and_no_fault(reading: Reading) -> None:
    gpu = reading(H100).gpus[0]

    assert gpu.fabric is None
    assert gpu.faults == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"161": [3, 0], "162": [0, 1]}, [LinkErrors(0, 3, 0), LinkErrors(1, 0, 1)]),
        ({"215": [None, 505]}, [LinkErrors(1, None, 505)]),
        ({"162": [0], "215": [1 << 40]}, [LinkErrors(0, None, 1 << 40)]),
        ({"52": [7], "59": [7]}, []),
        ({}, []),
    ],
    ids=["Hopper", "Blackwell", "both", "totals that Hopper does not count", "none"],
)
def test_the_errors_of_each_link_are_read_by_the_fields_that_the_gpu_has(
    reading: Reading, fields: dict[str, list[int | None]], expected: list[LinkErrors]
) -> None:
    gpu = reading({**GB200, "fields": fields}).gpus[0]

    assert (list(gpu.links), gpu.faults) == (expected, ())


def test_the_links_of_a_gpu_without_a_fabric_are_not_read(reading: Reading) -> None:
    assert reading({**H100, "fields": {"161": [3]}}).gpus[0].links == ()


def test_a_gpu_in_mig_mode_is_one_gpu(reading: Reading) -> None:
    found = reading(H100, MIG_A100, A100)

    assert [(gpu.index, gpu.mig, gpu.faults) for gpu in found.gpus] == [(0, False, ()), (1, True, ()), (2, False, ())]


def test_a_gpu_that_knows_no_mig_mode_has_no_fault(reading: Reading) -> None:
    gpu = reading({**H100, "mig": None}).gpus[0]

    assert (gpu.mig, gpu.faults) == (False, ())


def test_gpus_that_are_partitioned_differently_share_a_group_because_they_run_the_same(reading: Reading) -> None:
    assert [group.ids for group in groups(reading(MIG_A100, A100).gpus)] == [[0, 1]]


@pytest.mark.parametrize("code", ["GPU_IS_LOST", "RESET_REQUIRED", "INSUFFICIENT_POWER", "GPU_NOT_FOUND"])
def test_a_gpu_that_runs_nothing_is_unusable_however_much_of_it_is_read(reading: Reading, code: str) -> None:
    gpu = reading({**H100, "errors": {"nvmlDeviceGetPowerState": f"NVML_ERROR_{code}"}}).gpus[0]

    assert gpu.arch == "90"
    assert gpu.fatal_fault is not None
    assert gpu.fatal_fault.code == code


def test_a_fatal_fault_precedes_any_number_of_lesser_ones(reading: Reading) -> None:
    lost = {"nvmlDeviceGetMemoryInfo": "NVML_ERROR_GPU_IS_LOST"}
    gpu = reading({**H100, "name": "\xff", "uuid": "\xff", "errors": lost}).gpus[0]

    assert [fault.code for fault in gpu.faults] == ["GPU_IS_LOST", "UNREADABLE", "UNREADABLE"]


def test_a_lost_gpu_is_reported_beside_its_healthy_neighbours(reading: Reading) -> None:
    found = reading(H100, {**H100, "errors": {"nvmlDeviceGetHandleByIndex": "NVML_ERROR_GPU_IS_LOST"}}, A100)

    assert [gpu.fatal_fault is None for gpu in found.gpus] == [True, False, True]
    fault = found.gpus[1].fatal_fault
    assert fault is not None
    assert (fault.call, fault.code, fault.message) == ("nvmlDeviceGetHandleByIndex", "GPU_IS_LOST", "GPU is lost")


def test_names_that_are_no_text_are_a_fault_and_not_a_crash(reading: Reading) -> None:
    found = reading({**H100, "name": "\xff\xfe"}, {**H100, "name": "a\nb\x1b[31m"}, {**H100, "name": "x" * 95})

    assert [gpu.model for gpu in found.gpus] == ["", "a?b?[31m", "x" * 95]
    assert found.gpus[0].faults[0].code == "UNREADABLE"
    assert all(gpu.fatal_fault is None for gpu in found.gpus)


def test_a_name_too_long_for_the_binding_is_a_fault(reading: Reading) -> None:
    gpu = reading({**H100, "name": "x" * 200}).gpus[0]

    assert (gpu.model, gpu.faults[0].code) == ("", "INSUFFICIENT_SIZE")


def test_cuda_versions_are_written_as_people_do() -> None:
    assert [cuda_version(number) for number in (12080, 11040, 0, -1)] == ["12.8", "11.4", "", ""]
