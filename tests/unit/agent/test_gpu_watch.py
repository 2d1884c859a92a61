"""GPUs that change while the agent runs: through the real child and binding, over a library whose answers change."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from gkm.gpus.flap_filter import MISSING_SECONDS
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.values import Inventory, LinkErrors
from gkm_agent.gpus import MISSING_GPU_SECONDS, NOT_READ, GpuWatch
from support.fakes import nvml_library, pci_devices
from support.fakes.nvml_library import A100, GB200, H100
from support.host.waiting import until


@dataclass
class Machine:
    """A machine whose drivers and GPUs a test changes; `now` is its clock."""

    root: Path
    library: Path
    now: float = 0.0
    changed: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        variables = nvml_library.environment(self.root, library=self.library, gpus=[])
        pci_devices.plug(self.root / "pci", pci_devices.NVIDIA, driver="nvidia")
        self.reader = InventoryReader(os.environ | variables, 20.0, self.root / "pci")
        self.watch = GpuWatch(self.reader.read, self.changed, clock=lambda: self.now)

    def has(self, *gpus: nvml_library.Gpu, after: float = 60.0, **machine: Any) -> Inventory:  # noqa: ANN401 -- as the library takes it
        """Change the machine and let the agent read it `after` seconds."""
        nvml_library.describe(self.root / "nvml.json", gpus=gpus, **machine)
        return self.reads(after)

    def reads(self, after: float = 60.0) -> Inventory:
        """Let the agent read the machine again `after` seconds."""
        self.now += after
        self.changed.clear()
        self.watch.refresh()
        return self.watch.inventory


@pytest.fixture
def machine(tmp_path: Path, nvml: Path) -> Machine:
    return Machine(tmp_path, nvml)


def test_a_reading_that_raises_is_unreadable_and_the_next_one_follows() -> None:
    """Without the thread the last state would stay: a GPU that fails later would look healthy."""
    mended, seen = Event(), list[Inventory]()

    def read() -> Inventory:
        if not mended.is_set():
            raise MemoryError
        return Inventory()

    watch = GpuWatch(read, Event(), interval=0.01)
    watch.start()
    assert watch.wait(20)
    seen.append(watch.inventory)
    mended.set()
    until(lambda: not watch.inventory.unreadable, "the next reading")
    watch.stop()
    assert (seen[0].unreadable, seen[0].errors) == (True, ("GPUs cannot be read: MemoryError",))


def failing(call: str, error: str) -> dict[str, Any]:
    return {"errors": {call: f"NVML_ERROR_{error}"}}


def test_before_the_first_reading_nothing_is_known(machine: Machine) -> None:
    assert machine.watch.inventory == NOT_READ
    assert machine.watch.inventory.unreadable


def test_a_gpu_that_is_lost_is_seen_and_so_is_its_return(machine: Machine) -> None:
    machine.has(H100, H100)

    lost = machine.has(H100, {**H100, **failing("nvmlDeviceGetHandleByIndex", "GPU_IS_LOST")})
    assert machine.changed.is_set()
    assert [gpu.fatal_fault is None for gpu in lost.gpus] == [True, False]

    back = machine.has(H100, H100)
    assert machine.changed.is_set()
    assert [gpu.fatal_fault is None for gpu in back.gpus] == [True, True]


def test_a_gpu_that_is_added_or_taken_out_is_seen(machine: Machine) -> None:
    machine.has(H100)

    assert [gpu.arch for gpu in machine.has(H100, A100).gpus] == ["90", "80"]
    assert machine.changed.is_set()
    assert [gpu.arch for gpu in machine.has(H100).gpus] == ["90"]
    assert machine.changed.is_set()


def test_a_driver_upgrade_is_seen_from_end_to_end(machine: Machine) -> None:
    machine.has(H100, H100, driver_version="550.54.15")

    mismatched = machine.has(H100, H100, **failing("nvmlInit", "LIB_RM_VERSION_MISMATCH"))
    assert mismatched.unreadable
    assert [gpu.index for gpu in mismatched.gpus] == [0, 1]
    unloaded = machine.has(H100, H100, after=10, **failing("nvmlInit", "DRIVER_NOT_LOADED"))
    assert (unloaded.unreadable, unloaded.errors) == (True, ("nvmlInit: Driver Not Loaded",))
    assert machine.changed.is_set()
    empty = machine.has(after=10)
    assert empty.unreadable

    upgraded = machine.has(H100, H100, after=10, driver_version="580.65.06", cuda_driver_version=13000)
    assert (upgraded.driver_version, upgraded.gpus[0].cuda_driver_version) == ("580.65.06", "13.0")
    assert not upgraded.unreadable
    assert machine.changed.is_set()


def test_a_driver_that_stays_away_with_its_gpus_leaves_a_machine_without(machine: Machine) -> None:
    machine.has(H100)
    machine.has()

    assert machine.reads(MISSING_SECONDS - 1).unreadable
    assert machine.reads(1) == Inventory()
    assert machine.changed.is_set()


def test_fabric_that_changes_is_seen(machine: Machine) -> None:
    def attached(**changes: int) -> nvml_library.Gpu:
        return {**GB200, "fabric": {**GB200["fabric"], **changes}}

    states = []
    for fabric in (attached(state=2), attached(), attached(health_mask=0b01, health_summary=2), attached(clique_id=7)):
        found = machine.has(fabric).gpus[0].fabric
        assert machine.changed.is_set()
        assert found is not None
        states.append((found.state, found.clique_id, found.health))
    assert states == [
        ("InProgress", 1, "Healthy"),
        ("Completed", 1, "Healthy"),
        ("Completed", 1, "Unhealthy: degraded bandwidth"),
        ("Completed", 7, "Healthy"),
    ]


def test_readings_that_change_every_second_wake_no_agent(machine: Machine) -> None:
    machine.has({**GB200, "fields": {"161": [8]}})

    found = machine.has({**GB200, "fields": {"161": [9]}})

    assert found.gpus[0].links == (LinkErrors(0, replays=9),)
    assert not machine.changed.is_set()


def test_a_driver_that_hangs_is_away_like_any_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.has(H100)
    monkeypatch.setattr(machine.reader._command, "seconds", 0.3)

    hanging = machine.has(H100, errors={"nvmlInit": "HANG"})

    assert hanging.unreadable
    assert [gpu.index for gpu in hanging.gpus] == [0]
    assert "no answer within" in hanging.errors[0]


@pytest.mark.parametrize(
    ("changes", "pause"),
    [
        (lambda machine: machine.has(H100), 60.0),
        (lambda machine: machine.has(), 60.0),
        (lambda machine: machine.has(H100, **failing("nvmlInit", "UNKNOWN")), MISSING_GPU_SECONDS),
    ],
)
def test_gpus_are_read_more_often_while_they_are_away(
    machine: Machine, changes: Callable[[Machine], Inventory], pause: float
) -> None:
    changes(machine)

    assert machine.watch.pause == pause


def test_a_driver_that_is_mended_for_good_costs_no_more_than_a_healthy_one(machine: Machine) -> None:
    machine.has(H100, **failing("nvmlInit", "UNKNOWN"))
    machine.reads(MISSING_SECONDS)

    assert machine.watch.pause == 60.0
