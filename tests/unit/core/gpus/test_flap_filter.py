"""A series of readings: GPUs that vanish together are missing, with the cause, for five minutes."""

from gkm.gpus.flap_filter import MISSING_SECONDS, FlapFilter
from gkm.gpus.values import Gpu, GpuFabricInfo, Inventory
from hypothesis import given
from hypothesis import strategies as st

H100S = Inventory(tuple(Gpu(index, "cuda", uuid=f"GPU-{index}", arch="90", warp_size=32) for index in range(2)))
MI300X = Gpu(0, "hip", arch="gfx942", warp_size=64)
NOT_LOADED = Inventory(errors=("nvmlInit: Driver Not Loaded",))
NOTHING = Inventory()


def series(*readings: tuple[float, Inventory]) -> list[Inventory]:
    steadiness = FlapFilter()
    return [steadiness.filtered(reading, now) for now, reading in readings]


def test_gpus_of_a_driver_that_is_away_are_named_with_the_reason() -> None:
    *_, found = series((0, H100S), (60, NOT_LOADED))

    assert found.unreadable
    assert found.errors == NOT_LOADED.errors
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    fault = found.gpus[0].fatal_fault
    assert fault is not None
    assert (fault.code, fault.message) == ("NOT_READY", "nvmlInit: Driver Not Loaded")


def test_a_library_that_is_being_replaced_is_not_a_machine_without_gpus() -> None:
    *_, found = series((0, H100S), (60, NOTHING))

    assert found.unreadable
    assert found.errors == ("2 GPUs have vanished since the last reading",)


def test_missing_gpus_carry_no_stale_values() -> None:
    attached = Inventory((Gpu(0, "cuda", arch="100", warp_size=32, fabric=GpuFabricInfo("uuid", 1)),))

    *_, found = series((0, attached), (60, NOT_LOADED))

    assert (found.gpus[0].arch, found.gpus[0].fabric) == ("", None)


def test_returning_gpus_are_reported_at_once() -> None:
    upgraded = Inventory(tuple(Gpu(0, "cuda", arch="90", warp_size=32, driver_version="580.65.06") for _ in range(1)))

    assert series((0, H100S), (60, NOT_LOADED), (70, upgraded))[-1] == upgraded


def test_gpus_missing_for_long_count_as_removed() -> None:
    found = series((0, H100S), (60, NOTHING), (59 + MISSING_SECONDS, NOTHING), (60 + MISSING_SECONDS, NOTHING))

    assert [reading.unreadable for reading in found] == [False, True, True, False]
    assert found[-1] == NOTHING


def test_the_time_away_begins_anew_with_each_absence() -> None:
    found = series((0, H100S), (60, NOTHING), (200, H100S), (299, NOTHING), (299 + MISSING_SECONDS - 1, NOTHING))

    assert found[-1].unreadable


def test_a_lasting_error_remains_after_its_gpus_count_as_removed() -> None:
    *_, found = series((0, H100S), (60, NOT_LOADED), (60 + MISSING_SECONDS, NOT_LOADED))

    assert found == NOT_LOADED
    assert found.unreadable


def test_one_removed_gpu_among_others_is_reported_at_once() -> None:
    one = Inventory(H100S.gpus[:1])

    assert series((0, H100S), (60, one))[-1] == one


def test_a_machine_that_never_had_a_gpu_is_quiet_from_the_start() -> None:
    assert series((0, NOTHING), (60, NOTHING)) == [NOTHING, NOTHING]


def test_indices_are_stable_while_the_other_vendor_is_missing() -> None:
    both = Inventory((*H100S.gpus, Gpu(2, "hip", arch="gfx942", warp_size=64)))

    *_, found = series((0, both), (60, Inventory((MI300X,), NOT_LOADED.errors)))

    assert [(gpu.index, gpu.backend, gpu.fatal_fault is None) for gpu in found.gpus] == [
        (0, "cuda", False),
        (1, "cuda", False),
        (2, "hip", True),
    ]
    assert not found.unreadable


def test_both_vendors_away_are_both_named() -> None:
    both = Inventory((*H100S.gpus, Gpu(2, "hip", arch="gfx942", warp_size=64)))

    *_, found = series((0, both), (60, Inventory((MI300X,), NOT_LOADED.errors)), (70, NOTHING))

    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert found.unreadable


def test_eager_readings_end_when_gpus_count_as_removed() -> None:
    steadiness = FlapFilter()
    steadiness.filtered(NOT_LOADED, 0)

    assert steadiness.has_missing_gpus(MISSING_SECONDS - 1)
    assert not steadiness.has_missing_gpus(MISSING_SECONDS)
    steadiness.filtered(H100S, MISSING_SECONDS)
    assert not steadiness.has_missing_gpus(MISSING_SECONDS)


vendors = st.sampled_from([(), H100S.gpus, H100S.gpus[1:]])
readings = st.builds(
    lambda cuda, hip, errors: Inventory(
        (*cuda, *(Gpu(len(cuda) and cuda[-1].index + 1, "hip", arch="gfx942", warp_size=64) for _ in range(hip))),
        errors,
    ),
    vendors,
    st.integers(0, 1),
    st.sampled_from([(), ("nvmlInit: Driver Not Loaded",)]),
)


@given(st.lists(st.tuples(st.floats(0, 200), readings), max_size=12))
def test_any_series_lists_each_gpu_once_and_only_read_gpus_as_usable(
    steps: list[tuple[float, Inventory]],
) -> None:
    steadiness, now = FlapFilter(), 0.0
    for pause, reading in steps:
        now += pause
        found = steadiness.filtered(reading, now)
        assert len({gpu.index for gpu in found.gpus}) == len(found.gpus)
        usable = [(gpu.backend, gpu.arch) for gpu in found.gpus if not gpu.fatal_fault]
        assert usable == [(gpu.backend, gpu.arch) for gpu in reading.gpus]
        assert not reading.errors or found.errors == reading.errors
