"""One domain and one health of a node, from GPUs that may say anything. The table is in docs/reference/fabric.md."""

import re
from collections.abc import Callable

import pytest
from gkm.api.fabrics import NVLink
from gkm.gpus import fabric as decoding
from gkm.gpus.fabric import impairs, merged
from gkm.gpus.values import Fault, Gpu, GpuFabricInfo, Inventory
from gkm_agent.fabric.nvlink import Health, fabric_verdict, nvlink_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from msgspec.structs import replace
from support.agent.fabric_values import ATTACHED, DOMAIN, LOST, OTHER_UUID, UUID, gpus, lost

NO_UUID = replace(ATTACHED, cluster_uuid="", clique_id=0)
STARTING = GpuFabricInfo(UUID, 1, "InProgress", "")
REFUSED = replace(ATTACHED, status="Insufficient Resources")


@pytest.mark.parametrize(
    ("inventory", "domain", "health", "why"),
    [
        (gpus(ATTACHED, ATTACHED), DOMAIN, "healthy", ""),
        (gpus(replace(ATTACHED, clique_id=0)), f"{UUID}.0", "healthy", ""),
        (Inventory(), "", "none", "no GPU"),
        (gpus(None, None), "", "none", "not attached|no GPU is attached"),
        (gpus(NO_UUID, NO_UUID), "", "none", "no GPU is attached"),
        (gpus(replace(ATTACHED, cluster_uuid="0" * 8 + "-0000-0000-0000-" + "0" * 12)), "", "none", "no GPU is"),
        (gpus(ATTACHED, NO_UUID), DOMAIN, "healthy", ""),
        (gpus(ATTACHED, None), DOMAIN, "healthy", ""),
        (gpus(STARTING, STARTING), "", "degraded", "GPUs 0, 1: NVLink registration is InProgress"),
        (gpus(replace(STARTING, state="NotStarted")), "", "degraded", "GPU 0: .* NotStarted"),
        (gpus(ATTACHED, STARTING), "", "degraded", "GPU 1: .* InProgress"),
        (gpus(ATTACHED, REFUSED), "", "unhealthy", "GPU 1: .* Completed Insufficient Resources"),
        (gpus(STARTING, REFUSED), "", "unhealthy", "GPU 1"),
        (gpus(replace(ATTACHED, state="Unknown(9)")), "", "unhealthy", r"Unknown\(9\)"),
        (gpus(replace(ATTACHED, cluster_uuid="rack 7")), "", "unhealthy", "GPU 0"),
        (gpus(ATTACHED, replace(ATTACHED, clique_id=2)), "", "unhealthy", "different domains"),
        (gpus(ATTACHED, replace(ATTACHED, cluster_uuid=OTHER_UUID)), "", "unhealthy", OTHER_UUID),
        (Inventory((*gpus(ATTACHED).gpus, lost(1))), DOMAIN, "degraded", "GPU 1: .*GPU is lost"),
        (Inventory((lost(0), lost(1))), "", "unhealthy", "GPUs 0, 1: .*GPU is lost"),
        (Inventory((*gpus(NO_UUID).gpus, lost(1))), "", "none", "no GPU is attached"),
        (Inventory(errors=("GPUs cannot be read: the driver hangs",)), "", "unhealthy", "the driver hangs"),
    ],
)
def test_a_node_has_a_domain_where_all_its_gpus_say_the_same(
    inventory: Inventory, domain: str, health: str, why: str
) -> None:
    found = fabric_verdict(inventory)

    assert (found.domain, found.health.value) == (domain, health)
    assert re.search(why, found.cause)
    assert bool(found.cause) == bool(why)


def test_a_gpu_whose_fabric_cannot_be_asked_for_is_trouble_and_not_a_node_without_a_fabric() -> None:
    fault = Fault("nvmlDeviceGetGpuFabricInfo", "UNKNOWN", "Unknown Error")
    silent = Gpu(1, "cuda", model="NVIDIA GB200", arch="100", warp_size=32, faults=(fault,))

    assert fabric_verdict(Inventory((silent,))).health is Health.UNHEALTHY
    found = fabric_verdict(Inventory((*gpus(ATTACHED).gpus, silent)))
    assert (found.domain, found.health) == (DOMAIN, Health.DEGRADED)


@pytest.mark.parametrize(
    ("mask", "summary", "expected"),
    [
        (0, 0, "healthy"),
        (0xAA, 0, "healthy"),  # every field says "false"; nccl #2186 took it for trouble
        (0x11AA, 1, "healthy"),
        (0b01, 0, "degraded"),
        (0b01, 1, "degraded"),
        (0b0100, 0, "degraded"),
        (0b0100_0000, 0, "degraded"),
        (0b01_0000, 0, "unhealthy"),
        (2 << 8, 1, "unhealthy"),
        (2 << 12, 1, "unhealthy"),
        (2 << 14, 1, "degraded"),
        (1 << 14, 1, "healthy"),
        (0, 2, "unhealthy"),
        (0, 3, "degraded"),
        (0b01_0000, 3, "unhealthy"),
    ],
)
def test_health_is_what_nvml_sums_up_and_never_better_than_its_mask(mask: int, summary: int, expected: str) -> None:
    uuid = list(bytes.fromhex(UUID.replace("-", "")))
    fabric = decoding.decode(uuid, 1, 3, "Success", mask=mask, summary=summary)

    found = fabric_verdict(gpus(ATTACHED, fabric))

    assert (found.domain, found.health.value) == (DOMAIN, expected)


def test_a_node_says_the_health_of_its_worst_gpu() -> None:
    limited = replace(ATTACHED, health="LimitedCapacity", health_summary="LimitedCapacity")
    ill = replace(ATTACHED, health="Unhealthy", health_summary="Unhealthy")

    assert fabric_verdict(gpus(ATTACHED, limited, ill)).cause == "GPU 2: Unhealthy"
    assert fabric_verdict(gpus(limited, ATTACHED)).cause == "GPU 0: LimitedCapacity"


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ([], 0),
        ([0x11AA, 0x11AA], 0x11AA),
        ([0x11AA, 0x11A9], 0x11A9),
        ([0, 0b10], 0b10),
        ([1 << 8, 5 << 8, 6 << 8], 5 << 8),
        ([1 << 12, 2 << 12], 2 << 12),
        ([1 << 14, 2 << 14], 2 << 14),
    ],
)
def test_masks_of_several_gpus_become_one_that_says_the_worst_of_each_field(masks: list[int], expected: int) -> None:
    assert merged(masks) == expected


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=9))
def test_a_merged_mask_hides_no_trouble_and_invents_none(masks: list[int]) -> None:
    whole = merged(masks)

    said = {trouble for mask in masks for trouble in decoding.problems_in_mask(mask)}
    assert set(decoding.problems_in_mask(whole)) <= said
    assert bool(decoding.problems_in_mask(whole)) == bool(said)
    assert impairs(whole) == any(impairs(mask) for mask in masks)
    assert merged([whole, *masks]) == merged([whole])


def test_what_is_reported_is_of_the_gpu_that_decides() -> None:
    found = nvlink_of(gpus(ATTACHED, REFUSED))
    assert found is not None
    assert (found.cluster_uuid, found.state, found.status) == ("", "Completed", "Insufficient Resources")
    found = nvlink_of(gpus(NO_UUID, ATTACHED))
    assert found is not None
    assert (found.cluster_uuid, found.clique_id, found.health.mask) == (UUID, 1, 0x11AA)
    found = nvlink_of(gpus(ATTACHED, replace(ATTACHED, clique_id=2)))
    assert found is not None
    assert (found.cluster_uuid, found.clique_id) == ("", 0)
    assert "different domains" in found.status
    assert nvlink_of(gpus(None)) is None


@pytest.mark.parametrize(
    ("models", "flavor"),
    [
        (["NVIDIA GB200"], "nvidia-gb200"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"], "nvidia-h100-80gb-hbm3"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"], ""),
        (["NVIDIA GB200", ""], "nvidia-gb200"),
        (["\u2603", "!"], ""),
        (["x" * 96], "x" * 63),
    ],
)
def test_a_flavour_is_the_one_model_of_the_node(models: list[str], flavor: str) -> None:
    found = Inventory(tuple(Gpu(index, "cuda", model=model, arch="90") for index, model in enumerate(models)))
    assert fabric_verdict(found).flavor == flavor


_TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=256)
_WORD: Callable[..., st.SearchStrategy[str]] = lambda *words: st.sampled_from(words) | _TEXT  # noqa: E731 -- short
_FABRIC = st.none() | st.builds(
    GpuFabricInfo,
    _WORD(UUID, OTHER_UUID, ""),
    st.sampled_from([0, 1, 32766, (1 << 32) - 1]),
    _WORD("Completed", "InProgress", "NotStarted"),
    _WORD("Success"),
    _TEXT,
    st.integers(0, (1 << 32) - 1),
    _WORD("Healthy", "Unhealthy", ""),
)
_GPU = st.builds(
    lambda fabric, model, ok: Gpu(
        0, "cuda", model=model, arch="90" if ok else "", warp_size=32, fabric=fabric, faults=(LOST,)[ok:]
    ),
    _FABRIC,
    _TEXT,
    st.booleans(),
)
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@given(st.lists(_GPU, max_size=6))
def test_any_text_of_a_driver_becomes_a_valid_label(found: list[Gpu]) -> None:
    inventory = Inventory(tuple(replace(gpu, index=index) for index, gpu in enumerate(found)))

    said = fabric_verdict(inventory)

    assert all(_LABEL.fullmatch(value) for value in (said.domain, said.flavor, said.health.value))
    assert len(said.cause) <= 512
    told = nvlink_of(inventory)
    assert told is None or convert(to_builtins(told), NVLink) == told
    if said.domain:
        assert told is not None
        assert f"{told.cluster_uuid}.{told.clique_id}" == said.domain
        assert {gpu.fabric.cluster_uuid for gpu in found if gpu.fabric and gpu.arch} - {"", UUID, OTHER_UUID} == set()
