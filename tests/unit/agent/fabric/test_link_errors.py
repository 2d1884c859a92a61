"""Links whose errors recur make a node degraded; boots, drivers that start anew and single errors do not."""

from collections.abc import Sequence

import pytest
from gkm.gpus.values import GpuFabricInfo, Inventory, LinkErrors
from gkm_agent.fabric.link_errors import RECOVERED_READINGS, REPLAYED_READINGS, WINDOW_READINGS, Growth, LinkWindow
from msgspec.structs import replace
from support.agent.fabric_values import ATTACHED, UUID, gpus

STARTING = GpuFabricInfo(UUID, 1, "InProgress", "")


def reading(*links: LinkErrors, fabric: GpuFabricInfo | None = ATTACHED) -> Inventory:
    """A reading of two GPUs, of which the second has these links."""
    first, second = gpus(fabric, fabric).gpus
    return Inventory((first, replace(second, links=links)))


def recoveries(*counts: int | None) -> list[Inventory]:
    return [reading(LinkErrors(14, None, count)) for count in counts]


def replays(*counts: int | None) -> list[Inventory]:
    return [reading(LinkErrors(14, count, None)) for count in counts]


def fault_after(readings: Sequence[Inventory]) -> str:
    window = LinkWindow()
    for each in readings:
        window.observe(each)
    return window.fault


GROWING = range(505, 505 + WINDOW_READINGS)


def test_a_link_that_recovers_in_three_readings_is_named() -> None:
    assert fault_after(recoveries(*GROWING[: RECOVERED_READINGS + 1])) == "link errors: NVLink link 14 of GPU 1"
    assert fault_after(recoveries(*GROWING[:RECOVERED_READINGS])) == ""


def test_a_link_may_send_packets_again_in_half_of_the_readings() -> None:
    assert fault_after(replays(*GROWING[: REPLAYED_READINGS + 1])) == "link errors: NVLink link 14 of GPU 1"
    assert fault_after(replays(*GROWING[:REPLAYED_READINGS])) == ""


@pytest.mark.parametrize(
    "readings",
    [
        recoveries(*[505] * WINDOW_READINGS),
        recoveries(0, 900, 900, 900, 900),
        recoveries(900, 3, 900, 2, 1),
        recoveries(*[None, 4] * WINDOW_READINGS),
        [reading(LinkErrors(14, None, count), fabric=STARTING) for count in range(9)],
        [reading(LinkErrors(14, None, count), fabric=(STARTING, ATTACHED)[count % 2]) for count in range(9)],
        [reading(LinkErrors(14, None, count), fabric=None) for count in range(9)],
        [reading(LinkErrors(count, None, 9 * count)) for count in range(9)],
    ],
    ids=[
        "errors of long ago",
        "one burst",
        "a driver that starts anew",
        "a count that is not known",
        "a boot",
        "GPUs that register again",
        "GPUs without a fabric",
        "other links",
    ],
)
def test_no_other_series_is_a_fault(readings: list[Inventory]) -> None:
    assert fault_after(readings) == ""


def test_a_link_is_sound_again_once_its_errors_have_left_the_window() -> None:
    window = LinkWindow()
    for each in recoveries(*range(9), *[8] * (WINDOW_READINGS - RECOVERED_READINGS)):
        window.observe(each)
    assert window.fault != ""
    window.observe(*recoveries(8))
    assert window.fault == ""


def test_the_growth_of_all_links_is_counted() -> None:
    window = LinkWindow()
    assert window.observe(reading(LinkErrors(0, 5, 7), LinkErrors(1, 1, 1))) == Growth(0, 0)
    assert window.observe(reading(LinkErrors(0, 9, 7), LinkErrors(1, 2, 3))) == Growth(5, 2)
