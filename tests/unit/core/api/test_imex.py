"""The mode of IMEX, from what NVIDIA's driver publishes: only two facts together say that the hosts run daemons."""

import json

import msgspec
import pytest
from gkm.api.imex import DRIVER, IMEXMode, PublishedDevices, mode
from support.grove.imex import Json, resource_slice

BOTH, CHANNELS, NONE = {"channel", "daemon"}, {"channel"}, set[str]()


@pytest.mark.parametrize(
    ("has_daemon_class", "types", "expected"),
    [
        (False, CHANNELS, IMEXMode.HOST_MANAGED),
        (True, BOTH, IMEXMode.DRIVER_MANAGED),
        # No node has started its plugin yet, or only some have the new mode.
        (True, NONE, IMEXMode.DRIVER_MANAGED),
        (True, CHANNELS, IMEXMode.DRIVER_MANAGED),
        (False, BOTH, IMEXMode.DRIVER_MANAGED),
        # Without the driver, or before it publishes anything, there is no sign of either.
        (False, NONE, IMEXMode.UNKNOWN),
        (False, {"gpu"}, IMEXMode.UNKNOWN),
    ],
)
def test_the_mode_follows_from_the_class_and_the_devices(
    has_daemon_class: bool,  # noqa: FBT001
    types: set[str],
    expected: IMEXMode,
) -> None:
    assert mode(has_daemon_class=has_daemon_class, types=types) is expected


def decoded(value: Json) -> PublishedDevices:
    return msgspec.json.decode(json.dumps(value), type=PublishedDevices)


def test_the_types_are_those_of_the_driver_alone() -> None:
    assert decoded(resource_slice("n", "channel", "daemon")).types == BOTH
    assert decoded(resource_slice("n", "channel", driver="gpu.nvidia.com")).types == NONE


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"driver": DRIVER},
        {"driver": DRIVER, "devices": None},
        {"driver": DRIVER, "devices": [{"name": "x"}]},
        {"driver": DRIVER, "devices": [{"name": "x", "attributes": {"type": {"int": 3}}}]},
    ],
)
def test_a_slice_without_types_says_nothing(spec: Json) -> None:
    assert decoded({"metadata": {"name": "s"}, "spec": spec}).types <= {""}
