"""The mix of the configuration: what it lets through, fragmentation can be measured with."""

import pytest
from gkm.api.topology_settings import MixGroup, Packing
from gkm.packing.fragmentation import fragmentation
from gkm.packing.inventory import Inventory
from gkm.packing.values import MAX_GPUS, Location, Node
from msgspec import ValidationError, convert

ONE_NODE = Inventory.from_nodes([Node("n", Location("r", "c", "b", "d"), 8, 8)])


MAX_KINDS, MAX_WEIGHT = 32, 10**6
"""Sums of weighted GPUs stay far below 2^63 in the largest inventory there can be."""


def kinds(section: object) -> list[MixGroup]:
    return convert({"mix": section}, Packing).mix


def test_there_is_a_usual_mix() -> None:
    assert fragmentation(ONE_NODE, Packing().mix).largest_group == 8


def test_a_mix_is_read() -> None:
    assert kinds([{"gpus": 64, "gpusPerPod": 8, "weight": 3}, {"gpus": 8, "gpusPerPod": 8}]) == [
        MixGroup(64, 8, 3),
        MixGroup(8, 8, 1),
    ]


def test_the_largest_that_is_let_through_can_be_measured() -> None:
    group = {"gpus": MAX_GPUS, "gpusPerPod": MAX_GPUS, "weight": MAX_WEIGHT}
    mix = kinds([group] * MAX_KINDS)
    assert fragmentation(ONE_NODE, mix).expected_unusable_gpus == 8


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ([], "length"),
        ([{"gpus": 8, "gpusPerPod": 8}] * (MAX_KINDS + 1), "length"),
        ([{"gpus": MAX_GPUS + 1, "gpusPerPod": 1}], "gpus"),
        ([{"gpus": 8, "gpusPerPod": 8, "weight": MAX_WEIGHT + 1}], "weight"),
        ([{"gpus": 8, "gpusPerPod": 8, "weight": 0}], "weight"),
        ([{"gpus": 8, "gpusPerPod": 8, "weight": 0.5}], "weight"),
        ([{"gpus": 0, "gpusPerPod": 1}], "gpus"),
        ([{"gpus": -8, "gpusPerPod": -8}], "gpus"),
        ([{"gpus": True, "gpusPerPod": 1}], "gpus"),
        ([{"gpus": None, "gpusPerPod": 8}], "gpus"),
        ([{"gpus": 8, "gpusPerPod": 8, "weight": float("nan")}], "weight"),
        ([{"gpus": 4, "gpusPerPod": 8}], "does not divide into pods of 8"),
        ([{"gpus": 10, "gpusPerPod": 4}], "does not divide into pods of 4"),
        ([{"gpus": 8, "gpusPerPod": 0}], "gpusPerPod"),
        ([{"gpus": 8, "gpusPerPod": 3}], "does not divide into pods of 3"),
        ([{"gpus": 8}], "gpusPerPod"),
        ([{"gpus": "8", "gpusPerPod": 8}], "gpus"),
        ([{"gpus": 8, "gpusPerPod": 8, "share": 1}], "share"),
        ({"gpus": 8, "gpusPerPod": 8}, "mix"),
    ],
)
def test_a_mix_that_cannot_be_meant_is_refused(section: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said) as error:
        kinds(section)
    assert "\n" not in str(error.value)


def test_a_group_is_written_as_it_is_read() -> None:
    assert convert({"gpus": 64, "gpusPerPod": 8}, MixGroup) == MixGroup(64, 8, 1)
