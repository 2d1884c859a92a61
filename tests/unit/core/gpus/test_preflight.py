"""Which GPUs a cache fits, and the message for the others."""

import msgspec
import pytest
from gkm.api.errors import Reason
from gkm.api.targets import GpuTarget
from gkm.gpus import preflight
from gkm.gpus.preflight import MAX_MESSAGE
from gkm.gpus.values import Gpu, LinkErrors
from hypothesis import given
from hypothesis import strategies as st
from support.gpus.preflight_values import gpu, target, with_driver


def test_a_gpu_fits_when_one_of_the_targets_does() -> None:
    verdict = preflight.check([target(arch="80"), target(arch="90")], [gpu()])

    assert verdict.fits
    assert verdict.compatible[0].ids == [0]
    assert (verdict.incompatible, verdict.reason, verdict.message) == ((), None, "")


def test_the_prefix_of_a_cuda_architecture_does_not_matter() -> None:
    assert preflight.check([target(arch="sm_90")], [gpu()]).fits


def test_the_prefix_is_not_stripped_for_other_vendors() -> None:
    assert not preflight.check([target("hip", "sm_gfx90a", 64)], [gpu(0, "gfx90a", "hip", 64)]).fits
    assert preflight.check([target("hip", "gfx90a", 64)], [gpu(0, "gfx90a", "hip", 64)]).fits


def test_an_architecture_mismatch_names_both_architectures() -> None:
    verdict = preflight.check([target(arch="sm_90"), target(arch="100")], [gpu(arch="80")])

    (miss,) = verdict.incompatible
    assert (miss.reason, miss.message) == (
        "ArchitectureMismatch",
        "built for sm_90 and sm_100, this GPU is sm_80",
    )
    assert verdict.message == "GPU 0: built for sm_90 and sm_100, this GPU is sm_80"
    assert verdict.reason is Reason.ARCHITECTURE_MISMATCH


def test_a_backend_mismatch_names_both_backends() -> None:
    verdict = preflight.check([target("hip", "gfx942", 64)], [gpu()])

    assert verdict.reason is Reason.BACKEND_MISMATCH
    assert verdict.incompatible[0].message == "built for hip, this GPU is cuda"


def test_a_warp_size_mismatch_is_nearer_than_an_architecture_mismatch() -> None:
    verdict = preflight.check([target(warp_size=64), target(arch="80"), target("hip")], [gpu()])

    assert verdict.reason is Reason.WARP_SIZE_MISMATCH
    assert verdict.incompatible[0].message == "built for a warp size of 64, this GPU has 32"


def test_no_gpu_is_a_reason_of_its_own() -> None:
    verdict = preflight.check([target()], [])

    assert (verdict.reason, verdict.message) == (
        Reason.NO_GPU,
        "this node has no GPU; the cache is built for sm_90",
    )


@pytest.mark.parametrize("code", ["GPU_IS_LOST", "RESET_REQUIRED"])
def test_a_lost_gpu_with_a_readable_architecture_fits_nothing(code: str) -> None:
    verdict = preflight.check([target()], [gpu(fault=code)])

    assert verdict.reason is Reason.GPU_LOST
    assert verdict.incompatible[0].message == "this GPU cannot be used (nvmlDeviceGetName: GPU is lost)"


def test_a_gpu_of_unknown_architecture_fits_nothing() -> None:
    assert preflight.check([target(arch="")], [gpu(arch="")]).reason is Reason.GPU_LOST


def test_a_lesser_fault_does_not_matter() -> None:
    assert preflight.check([target()], [gpu(fault="NO_PERMISSION")]).fits


def test_an_image_without_targets_fits_nothing() -> None:
    assert preflight.check([], [gpu()]).reason is Reason.METADATA_MISSING


def test_gpus_with_the_same_mismatch_share_an_entry_and_a_message() -> None:
    verdict = preflight.check([target("cuda", "75")], [gpu(index, "80") for index in (0, 1, 2, 3, 5)] + [gpu(4, "90")])

    assert [miss.ids for miss in verdict.incompatible] == [[0, 1, 2, 3, 5], [4]]
    assert verdict.message == (
        "GPUs 0-3, 5: built for sm_75, this GPU is sm_80; GPU 4: built for sm_75, this GPU is sm_90"
    )


def test_on_a_mixed_node_each_gpu_gets_its_own_verdict() -> None:
    verdict = preflight.check([target()], [gpu(0), gpu(1, "80"), gpu(2), gpu(3, fault="GPU_IS_LOST")])

    assert verdict.fits
    assert verdict.compatible[0].ids == [0, 2]
    assert [(miss.ids, miss.reason) for miss in verdict.incompatible] == [
        ([1], "ArchitectureMismatch"),
        ([3], "GPULost"),
    ]


def test_a_label_that_shouts_is_cut_down_to_a_line() -> None:
    loud = [target(arch=f"{number}\n\x1b[2J" + "A" * 5000) for number in range(200)]

    message = preflight.check(loud, [gpu()]).message

    assert len(message) <= MAX_MESSAGE
    assert message.isprintable()
    assert "194 more" in message


@pytest.mark.parametrize("arch", ["90", "sm_90", "sm90", "sm_90a", "90a", "sm_90f"])
def test_every_spelling_of_a_cuda_architecture_is_the_same_gpu(arch: str) -> None:
    assert preflight.check([target(arch=arch)], [gpu()]).fits


@pytest.mark.parametrize("arch", ["9", "900", "sm_9x", "compute_90", "sm_sm_90", "90 ", "gfx90a"])
def test_another_architecture_does_not_fit(arch: str) -> None:
    assert preflight.check([target(arch=arch)], [gpu()]).reason is Reason.ARCHITECTURE_MISMATCH


def test_a_cubin_of_the_same_generation_does_not_fit() -> None:
    verdict = preflight.check([target(arch="80")], [gpu(arch="86")])

    assert verdict.message == "GPU 0: built for sm_80, this GPU is sm_86"


def test_rocm_is_an_alias_of_hip() -> None:
    assert preflight.check([target("rocm", "gfx942", 64)], [gpu(0, "gfx942", "hip", 64)]).fits


def test_features_of_a_processor_are_not_another_processor() -> None:
    assert preflight.check([target("hip", "gfx90a:sramecc+:xnack-", 64)], [gpu(0, "gfx90a", "hip", 64)]).fits


def test_the_warp_size_64_of_mcv_is_ignored_for_rdna() -> None:
    assert preflight.check([target("hip", "gfx1100", 64)], [gpu(0, "gfx1100", "hip", 32)]).fits
    assert preflight.check([target("hip", "gfx1100", 32)], [gpu(0, "gfx1100", "hip", 32)]).fits


def test_a_warp_size_that_a_processor_cannot_have_does_not_fit() -> None:
    verdict = preflight.check([target("hip", "gfx942", 32)], [gpu(0, "gfx942", "hip", 64)])

    assert verdict.reason is Reason.WARP_SIZE_MISMATCH
    assert verdict.message == "GPU 0: built for a warp size of 32, this GPU has 64"


@pytest.mark.parametrize(("backend", "warp_size"), [("tpu", 128), ("cpu", 1), ("hpu", 32), ("xpu", 32)])
def test_a_target_that_is_not_a_gpu_fits_no_gpu(backend: str, warp_size: int) -> None:
    verdict = preflight.check([target(backend, "v5e", warp_size)], [gpu(), gpu(1, "gfx942", "hip", 64)])

    assert verdict.reason is Reason.BACKEND_MISMATCH
    assert [miss.message for miss in verdict.incompatible] == [
        f"built for {backend}, this GPU is cuda",
        f"built for {backend}, this GPU is hip",
    ]


@pytest.mark.parametrize(
    "target", [target("", "90", 32), target("cuda", "", 32), target("cuda", "sm_", 32), target("cuda", "90", 0),
               target("cuda", "90", -32), target("cuda", "90", 1 << 40), target(" ", " ", 32)],
)  # fmt: skip
def test_targets_that_no_gpu_can_be_are_invalid(target: GpuTarget) -> None:
    verdict = preflight.check([target], [gpu()])

    assert verdict.reason is Reason.METADATA_INVALID
    assert "the image was built for a GPU that cannot exist: backend " in verdict.message


def test_an_invalid_target_beside_a_valid_one_is_ignored() -> None:
    assert preflight.check([target("", "", 0), target()], [gpu()]).fits


def test_a_mig_gpu_has_the_verdict_of_its_gpu() -> None:
    assert preflight.check([target()], [msgspec.structs.replace(gpu(), mig=True)]).compatible[0].ids == [0]


text = st.text(max_size=40)
targets = st.builds(GpuTarget, st.sampled_from(["cuda", "hip", "rocm"]) | text,
                    st.sampled_from(["90", "sm_90", "80", "gfx90a"]) | text, st.sampled_from([32, 64]) | st.integers(),
                    st.none() | st.integers(), st.sampled_from(["", "12.9", "13.0"]) | text)  # fmt: skip
drivers = st.sampled_from(["", "470.57.02", "570.86.15"]) | st.text("0123456789.", max_size=12)


@st.composite
def some_gpu(draw: st.DrawFn) -> Gpu:
    return with_driver(
        draw(drivers),
        index=draw(st.integers(0, 63)),
        arch=draw(st.sampled_from(["90", "80", "gfx90a", ""])),
        backend=draw(st.sampled_from(["cuda", "hip"])),
        warp_size=draw(st.sampled_from([32, 64, 0])),
        fault=draw(st.sampled_from(["", "GPU_IS_LOST", "TIMEOUT"])),
    )


gpus = st.lists(some_gpu(), max_size=8, unique_by=lambda gpu: gpu.index)


@given(st.lists(targets, max_size=6), gpus)
def test_every_gpu_has_exactly_one_verdict_and_a_printable_reason(built: list[GpuTarget], present: list[Gpu]) -> None:
    verdict = preflight.check(built, present)

    fitting = [index for group in verdict.compatible for index in group.ids]
    missing = [index for group in verdict.incompatible for index in group.ids]
    assert sorted(fitting + missing) == sorted(gpu.index for gpu in present)
    assert verdict.fits == bool(fitting)
    assert (verdict.reason is None) == verdict.fits
    assert all(miss.message.isprintable() and len(miss.message) <= MAX_MESSAGE for miss in verdict.incompatible)
    assert len(verdict.message) <= MAX_MESSAGE


@given(st.lists(targets, max_size=6), gpus)
def test_a_fitting_gpu_matches_a_target_in_all_three_fields(built: list[GpuTarget], present: list[Gpu]) -> None:
    fitting = {index for group in preflight.check(built, present).compatible for index in group.ids}

    for found in present:
        agreeing = {
            ("hip" if target.backend == "rocm" else target.backend, target.arch.removeprefix("sm_"), target.warp_size)
            for target in built
        }
        if found.index in fitting:
            assert found.fatal_fault is None
            assert (found.backend, found.arch, found.warp_size) in agreeing


@given(st.lists(targets, max_size=5), targets, gpus)
def test_another_target_never_removes_a_gpu_from_the_verdict(
    built: list[GpuTarget], more: GpuTarget, present: list[Gpu]
) -> None:
    before = {index for group in preflight.check(built, present).compatible for index in group.ids}
    after = {index for group in preflight.check([*built, more], present).compatible for index in group.ids}

    assert before <= after


def test_a_verdict_holds_for_the_next_reading_whose_counters_have_grown() -> None:
    preflight._checked.cache_clear()
    for number in range(3):
        read = msgspec.structs.replace(gpu(), links=(LinkErrors(0, replays=number),))
        assert preflight.check([target()], [read]).fits
    misses = preflight._checked.cache_info().misses
    assert misses == 1, "each reading is checked anew for each cache, and the cache of verdicts holds 512 readings"
