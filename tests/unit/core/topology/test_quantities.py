"""Kubernetes quantities as numbers of GPUs."""

import pytest
from gkm.topology.nodes import MAX_GPUS, Quantity, gpu_count
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize("quantity", ["8", 8, 8.0, "+8", "08", "8.0", "8.", "8000m", "8e0", "0.8E1", "80e-1", "0.008k"])
def test_eight_may_be_written_in_many_ways(quantity: Quantity) -> None:
    assert gpu_count(quantity) == 8


@pytest.mark.parametrize("quantity", ["0", 0, "0k", "0E", "0Gi"])
def test_zero_is_a_number_of_gpus(quantity: Quantity) -> None:
    assert gpu_count(quantity) == 0


@pytest.mark.parametrize(
    "quantity",
    ["", "NaN", "inf", "-1", -1, "- 1", "8 ", "８", "0x8", "1_0", "8K", "8ki", "8kk", "e3", ".", "8e999", "--8"],
)
def test_an_invalid_number_of_gpus_is_refused(quantity: Quantity) -> None:
    with pytest.raises(ValueError, match="is no number of GPUs"):
        gpu_count(quantity)


@pytest.mark.parametrize("quantity", ["0.5", 0.5, "500m", "8001m", "1n"])
def test_a_part_of_a_gpu_is_refused(quantity: Quantity) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        gpu_count(quantity)


@pytest.mark.parametrize("quantity", [MAX_GPUS + 1, "8k", "2Ki", "1M", "1Ei", "9" * 18, "1e99"])
def test_more_than_a_machine_can_have_is_refused(quantity: Quantity) -> None:
    with pytest.raises(ValueError, match="more than the"):
        gpu_count(quantity)


@pytest.mark.parametrize("quantity", [".001E", "0.001G", "0.5Mi", "0.999999999999999999Ei", "1.5k", "0.1Ti"])
def test_a_fraction_of_a_large_unit_is_exact(quantity: str) -> None:
    """Found by fuzzing: every unit above k counted as a million, so that .001E were 1000 GPUs."""
    with pytest.raises(ValueError, match="more than the"):
        gpu_count(quantity)


@pytest.mark.parametrize(
    ("quantity", "number"),
    [("0.000008M", 8), ("0.000000001G", 1), ("0.000008e6", 8), ("0.0078125Ki", 8), ("000000000000000008", 8)],
)
def test_a_small_part_of_a_large_unit_is_a_few(quantity: str, number: int) -> None:
    assert gpu_count(quantity) == number


def test_no_digit_is_lost() -> None:
    with pytest.raises(ValueError, match="no whole number"):
        gpu_count("8.000000000000000001")
    with pytest.raises(ValueError, match="no whole number"):
        gpu_count("0.000000000000000009Pi")


@pytest.mark.parametrize("quantity", ["8e", "512ei", "8i", "8K", "8ki", "8e+", "8E-", "8Ee1", "8m1"])
def test_an_unknown_suffix_is_refused(quantity: str) -> None:
    """Found by fuzzing: 8e and 8ei raised an error of decimal arithmetic."""
    with pytest.raises(ValueError, match="no number of GPUs"):
        gpu_count(quantity)


def test_the_maximum_is_accepted() -> None:
    assert gpu_count("1Ki") == MAX_GPUS


@given(st.text() | st.integers() | st.floats())
def test_any_quantity_is_a_bounded_number_or_a_short_error(quantity: Quantity) -> None:
    try:
        assert 0 <= gpu_count(quantity) <= MAX_GPUS
    except ValueError as error:
        assert str(error).isascii()
        assert len(str(error)) < 500


@given(st.integers(0, MAX_GPUS))
def test_a_whole_number_is_itself(number: int) -> None:
    assert gpu_count(str(number)) == gpu_count(number) == gpu_count(f"{number * 1000}m") == number
