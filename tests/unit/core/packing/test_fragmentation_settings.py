"""The mix of the configuration: what it lets through, fragmentation can be measured with."""

import pytest
from gkm.api.topology_settings import MixGroup, Packing
from gkm.packing.fragmentation import fragmentation
from gkm.packing.inventory import Inventory
from gkm.packing.values import MAX_GPUS, MAX_KINDS, MAX_WEIGHT, GroupKind, Location, Node
from msgspec import ValidationError, convert

ONE_NODE = Inventory.from_nodes([Node("n", Location("r", "c", "b", "d"), 8, 8)])


def kinds(section: object) -> list[GroupKind]:
    return [GroupKind(group.gpus, group.gpus_per_pod, group.weight) for group in convert({"mix": section}, Packing).mix]


def test_there_is_a_usual_mix() -> None:
    mix = [GroupKind(group.gpus, group.gpus_per_pod, group.weight) for group in Packing().mix]
    assert fragmentation(ONE_NODE, mix).largest_group == 8


def test_a_mix_is_read() -> None:
    assert kinds([{"gpus": 64, "gpusPerPod": 8, "weight": 3}, {"gpus": 8, "gpusPerPod": 8}]) == [
        GroupKind(64, 8, 3),
        GroupKind(8, 8, 1),
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
