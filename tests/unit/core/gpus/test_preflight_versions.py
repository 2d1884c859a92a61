"""Which drivers run binaries of which CUDA and PTX, and the message for the others."""

import msgspec
import pytest
from gkm.api.errors import Reason
from gkm.gpus import preflight
from support.gpus.preflight_values import gpu, target, with_driver


def test_the_target_of_a_vllm_binary_cache_fits_as_mcv_writes_it() -> None:
    mcvs = target("cuda", "sm_75", 32, ptx_version=590, cuda_version="12.9")

    assert preflight.check([mcvs], [with_driver("570.86.15", "12.8", arch="75")]).fits


@pytest.mark.parametrize(
    ("cuda", "driver", "fits"),
    [
        ("13.0", "470.57.02", False),
        ("13.1", "530.30.02", False),
        ("13.0", "535.54.03", True),
        ("13.0", "580.65.06", True),
        ("12.9", "418.40.04", False),
        ("12.9", "450.80.02", True),
        ("12.9", "525.60.13", True),
        ("12.9.1", "570.86.15", True),
        ("11.8", "418.40.04", True),
        ("14.0", "470.57.02", True),
        ("new", "470.57.02", True),
        ("13.0", "", True),
        ("13.0", "unknown", True),
    ],
)
def test_a_driver_is_too_old_only_where_no_supported_way_runs_that_cuda(cuda: str, driver: str, *, fits: bool) -> None:
    verdict = preflight.check([target(cuda_version=cuda)], [with_driver(driver)])

    assert verdict.fits == fits
    assert verdict.reason == (None if fits else Reason.DRIVER_TOO_OLD)


def test_a_driver_that_is_too_old_is_reported_with_the_oldest_sufficient_one() -> None:
    verdict = preflight.check([target(cuda_version="13.0")], [with_driver("470.57.02", "11.4")])

    assert verdict.message == (
        "GPU 0: built with CUDA 13.0, which runs on drivers from 535 on, this GPU has driver 470.57.02 (CUDA 11.4)"
    )


@pytest.mark.parametrize(
    ("ptx", "driver", "fits"),
    [
        (90, "470.57.02", False),
        (91, "530.30.02", False),
        (90, "535.54.03", True),
        (84, "440.33.01", False),
        (84, "450.80.02", True),
        (87, "525.60.13", True),
        (78, "418.40.04", True),
        (0, "418.40.04", True),
        (-90, "418.40.04", True),
        (590, "470.57.02", True),
        (100, "470.57.02", True),
    ],
)
def test_ptx_is_too_new_only_where_no_supported_way_runs_its_cuda(ptx: int, driver: str, *, fits: bool) -> None:
    verdict = preflight.check([target(ptx_version=ptx)], [with_driver(driver)])

    assert verdict.fits == fits
    assert verdict.reason == (None if fits else Reason.PTX_TOO_NEW)


def test_ptx_that_is_too_new_is_reported_with_the_oldest_sufficient_driver() -> None:
    verdict = preflight.check([target(ptx_version=90)], [with_driver("470.57.02", "11.4")])

    assert verdict.message == (
        "GPU 0: built with PTX 9.0 of CUDA 13, which runs on drivers from 535 on, "
        "this GPU has driver 470.57.02 (CUDA 11.4)"
    )


def test_a_cuda_version_that_is_stated_decides_and_the_ptx_beside_it_does_not() -> None:
    assert preflight.check([target(ptx_version=90, cuda_version="12.9")], [with_driver("470.57.02")]).fits


def test_one_target_that_the_driver_runs_is_enough() -> None:
    verdict = preflight.check([target(cuda_version="13.0"), target(cuda_version="12.4")], [with_driver("470.57.02")])

    assert verdict.fits


def test_a_driver_of_another_vendor_does_not_affect_cuda() -> None:
    amd = msgspec.structs.replace(gpu(0, "gfx942", "hip", 64), driver_version="6.10.5")

    assert preflight.check([target("hip", "gfx942", 64, ptx_version=90, cuda_version="13.0")], [amd]).fits


def test_a_node_with_several_troubles_names_each_once_and_acts_on_the_nearest() -> None:
    verdict = preflight.check(
        [target(cuda_version="13.0")],
        [
            *(with_driver("470.57.02", "11.4", index=index) for index in (0, 1)),
            with_driver("470.57.02", index=2, arch="80"),
            gpu(3, "gfx942", "hip", 64),
        ],
    )

    assert [(miss.ids, miss.reason) for miss in verdict.incompatible] == [
        ([0, 1], "DriverTooOld"),
        ([2], "ArchitectureMismatch"),
        ([3], "BackendMismatch"),
    ]
    assert verdict.reason is Reason.DRIVER_TOO_OLD
