"""GPUs as the API lists them, and NVLink's numbers in words."""

import pytest
from gkm.gpus import fabric
from gkm.gpus.groups import gpu_type, groups
from gkm.gpus.values import Fault, Gpu
from support.fakes.nvml_library import GB200, H100
from support.gpus.inventories import Reading

UUID = list(bytes.fromhex("7b968a6dc8aa45e19e07e1e51be99c31"))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("  Tesla V100 (SXM2) ", "tesla-v100-sxm2"),
        ("", ""),
        ("???", ""),
        ("x" * 200, "x" * 63),
    ],
)
def test_a_model_has_one_spelling_that_can_be_a_label(model: str, expected: str) -> None:
    assert gpu_type(model) == expected


def test_equal_gpus_share_a_group(reading: Reading) -> None:
    found = groups(reading(H100, GB200, H100, {**H100, "memory_mib": 1}).gpus)

    assert [(group.ids, group.gpu_type, group.arch) for group in found] == [
        ([0, 2], "nvidia-h100-80gb-hbm3", "90"),
        ([1], "nvidia-gb200", "100"),
        ([3], "nvidia-h100-80gb-hbm3", "90"),
    ]
    assert found[1].fabric is not None
    assert found[1].fabric.cluster_uuid == "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"


def test_a_lost_gpu_is_never_in_the_group_of_a_healthy_one() -> None:
    lost = Gpu(1, "cuda", arch="90", warp_size=32, faults=(Fault("nvmlDeviceGetName", "GPU_IS_LOST", ""),))

    assert [group.ids for group in groups([Gpu(0, "cuda", arch="90", warp_size=32), lost])] == [[0], [1]]


def test_no_gpu_makes_no_group() -> None:
    assert groups([]) == []


def test_a_gpu_that_does_not_know_fabrics_has_none() -> None:
    assert fabric.decode(UUID, 1, 0, "Success") is None


@pytest.mark.parametrize(("state", "name"), [(1, "NotStarted"), (2, "InProgress"), (9, "Unknown(9)")])
def test_the_registration_result_counts_only_when_it_is_completed(state: int, name: str) -> None:
    found = fabric.decode(UUID, 1, state, "Success")

    assert found is not None
    assert (found.state, found.status) == (name, "")


def test_an_all_zero_cluster_is_no_name_that_nodes_could_share() -> None:
    found = fabric.decode([0] * 16, 0, 3, "Success")

    assert found is not None
    assert found.cluster_uuid == ""


@pytest.mark.parametrize(
    ("mask", "summary", "expected"),
    [
        (0, 0, ""),
        (0, 1, "Healthy"),
        (0xAA, 0, "Healthy"),
        (0b01, 0, "Unhealthy: degraded bandwidth"),
        (0b0101, 2, "Unhealthy: degraded bandwidth, route recovery"),
        (1 << 4 | 1 << 6, 3, "LimitedCapacity: route unhealthy, access timeout recovery"),
        (5 << 8, 2, "Unhealthy: insufficient NVLinks"),
        (1 << 8, 1, "Healthy"),
        (15 << 8, 2, "Unhealthy: incorrect configuration 15"),
    ],
)
def test_health_is_described_in_words(mask: int, summary: int, expected: str) -> None:
    assert fabric.health(mask, summary) == expected
