"""Which GPUs a cache fits, and the sentence that says why not."""

from dataclasses import dataclass

import pytest
from gkm.api.errors import Reason
from gkm.gpus import preflight
from gkm.gpus.preflight import MAX_MESSAGE
from gkm.gpus.values import Fault, Gpu
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Target:
    backend: str = "cuda"
    arch: str = "90"
    warp_size: int = 32


def gpu(index: int = 0, arch: str = "90", backend: str = "cuda", warp_size: int = 32, fault: str = "") -> Gpu:
    faults = (Fault("nvmlDeviceGetName", fault, "GPU is lost"),) if fault else ()
    return Gpu(index, backend, arch=arch, warp_size=warp_size, faults=faults)


def test_a_gpu_fits_when_one_of_the_targets_does() -> None:
    verdict = preflight.check([Target(arch="80"), Target(arch="90")], [gpu()])

    assert verdict.fits
    assert verdict.compatible[0].ids == [0]
    assert (verdict.incompatible, verdict.reason, verdict.message) == ((), None, "")


def test_the_prefix_of_a_cuda_architecture_does_not_matter() -> None:
    assert preflight.check([Target(arch="sm_90")], [gpu()]).fits


def test_the_prefix_is_not_stripped_for_other_vendors() -> None:
    assert not preflight.check([Target("hip", "sm_gfx90a", 64)], [gpu(0, "gfx90a", "hip", 64)]).fits
    assert preflight.check([Target("hip", "gfx90a", 64)], [gpu(0, "gfx90a", "hip", 64)]).fits


def test_an_architecture_mismatch_says_what_was_expected_and_found() -> None:
    verdict = preflight.check([Target(arch="sm_90"), Target(arch="100")], [gpu(arch="80")])

    (miss,) = verdict.incompatible
    assert (miss.reason, miss.message) == (
        "ArchitectureMismatch",
        "built for sm_90 and sm_100, this GPU is sm_80",
    )
    assert verdict.message == "GPU 0: built for sm_90 and sm_100, this GPU is sm_80"
    assert verdict.reason is Reason.ARCHITECTURE_MISMATCH


def test_a_backend_mismatch_names_both_backends() -> None:
    verdict = preflight.check([Target("hip", "gfx942", 64)], [gpu()])

    assert verdict.reason is Reason.BACKEND_MISMATCH
    assert verdict.incompatible[0].message == "built for hip, this GPU is cuda"


def test_a_warp_size_mismatch_is_nearer_than_an_architecture_mismatch() -> None:
    verdict = preflight.check([Target(warp_size=64), Target(arch="80"), Target("hip")], [gpu()])

    assert verdict.reason is Reason.WARP_SIZE_MISMATCH
    assert verdict.incompatible[0].message == "built for a warp size of 64, this GPU has 32"


def test_no_gpu_is_a_reason_of_its_own() -> None:
    verdict = preflight.check([Target()], [])

    assert (verdict.reason, verdict.message) == (
        Reason.NO_GPU,
        "this node has no GPU; the cache is built for sm_90",
    )


@pytest.mark.parametrize("code", ["GPU_IS_LOST", "RESET_REQUIRED"])
def test_a_lost_gpu_fits_nothing_even_where_its_architecture_is_still_read(code: str) -> None:
    verdict = preflight.check([Target()], [gpu(fault=code)])

    assert verdict.reason is Reason.GPU_LOST
    assert verdict.incompatible[0].message == "this GPU cannot be used (nvmlDeviceGetName: GPU is lost)"


def test_a_gpu_of_unknown_architecture_fits_nothing() -> None:
    assert preflight.check([Target(arch="")], [gpu(arch="")]).reason is Reason.GPU_LOST


def test_a_lesser_fault_does_not_matter() -> None:
    assert preflight.check([Target()], [gpu(fault="NO_PERMISSION")]).fits


def test_an_image_without_targets_fits_nothing() -> None:
    assert preflight.check([], [gpu()]).reason is Reason.METADATA_MISSING


def test_gpus_that_miss_alike_share_an_entry_and_the_sentence_counts_them() -> None:
    verdict = preflight.check([Target("cuda", "75")], [gpu(index, "80") for index in (0, 1, 2, 3, 5)] + [gpu(4, "90")])

    assert [miss.ids for miss in verdict.incompatible] == [[0, 1, 2, 3, 5], [4]]
    assert verdict.message == (
        "GPUs 0-3, 5: built for sm_75, this GPU is sm_80; GPU 4: built for sm_75, this GPU is sm_90"
    )


def test_on_a_mixed_node_each_gpu_gets_its_own_verdict() -> None:
    verdict = preflight.check([Target()], [gpu(0), gpu(1, "80"), gpu(2), gpu(3, fault="GPU_IS_LOST")])

    assert verdict.fits
    assert verdict.compatible[0].ids == [0, 2]
    assert [(miss.ids, miss.reason) for miss in verdict.incompatible] == [
        ([1], "ArchitectureMismatch"),
        ([3], "GPULost"),
    ]


def test_a_label_that_shouts_is_cut_down_to_a_line() -> None:
    loud = [Target(arch=f"{number}\n\x1b[2J" + "A" * 5000) for number in range(200)]

    message = preflight.check(loud, [gpu()]).message

    assert len(message) <= MAX_MESSAGE
    assert message.isprintable()
    assert "194 more" in message


text = st.text(max_size=40)
targets = st.builds(Target, st.sampled_from(["cuda", "hip"]) | text, st.sampled_from(["90", "sm_90", "80"]) | text,
                    st.sampled_from([32, 64]) | st.integers())  # fmt: skip
gpus = st.lists(st.builds(gpu, st.integers(0, 63), st.sampled_from(["90", "80", "gfx90a", ""]),
                          st.sampled_from(["cuda", "hip"]), st.sampled_from([32, 64]),
                          st.sampled_from(["", "GPU_IS_LOST", "TIMEOUT"])), max_size=8,
                unique_by=lambda gpu: gpu.index)  # fmt: skip


@given(st.lists(targets, max_size=6), gpus)
def test_every_gpu_has_exactly_one_verdict_and_a_printable_reason(built: list[Target], present: list[Gpu]) -> None:
    verdict = preflight.check(built, present)

    fitting = [index for group in verdict.compatible for index in group.ids]
    missing = [index for group in verdict.incompatible for index in group.ids]
    assert sorted(fitting + missing) == sorted(gpu.index for gpu in present)
    assert verdict.fits == bool(fitting)
    assert (verdict.reason is None) == verdict.fits
    assert all(miss.message.isprintable() and len(miss.message) <= MAX_MESSAGE for miss in verdict.incompatible)
    assert len(verdict.message) <= MAX_MESSAGE


@given(st.lists(targets, max_size=6), gpus)
def test_what_fits_has_a_target_that_agrees_in_all_three(built: list[Target], present: list[Gpu]) -> None:
    fitting = {index for group in preflight.check(built, present).compatible for index in group.ids}

    for gpu in present:
        agrees = any(
            (target.backend, target.warp_size) == (gpu.backend, gpu.warp_size)
            and (target.arch.removeprefix("sm_") if gpu.backend == "cuda" else target.arch) == gpu.arch
            for target in built
        )
        assert (gpu.index in fitting) == (agrees and gpu.unusable is None)


@given(st.lists(targets, max_size=5), targets, gpus)
def test_one_more_target_never_takes_a_gpu_away(built: list[Target], more: Target, present: list[Gpu]) -> None:
    before = {index for group in preflight.check(built, present).compatible for index in group.ids}
    after = {index for group in preflight.check([*built, more], present).compatible for index in group.ids}

    assert before <= after
