"""Every word of NVML's health mask and every health of a node, from the driver's number to what NodeFabric says."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from gkm.api.fabric_settings import Fabric, SettleThresholds
from gkm.api.fabrics import NodeFabricStatus
from gkm.gpus import inventory
from gkm_agent.fabric.watch import FabricWatch
from support.agent.fabric_fakes import FakeFabricSink
from support.fakes import nvml_library, pci_devices
from support.fakes.nvml_library import GB200, H100

Fabrics = Callable[..., NodeFabricStatus]


@pytest.fixture
def fabric(tmp_path: Path, nvml: Path) -> Fabrics:
    """Return a function that reads GPUs through the real binding and returns what the agent then says of the node."""
    devices, sys = tmp_path / "pci", tmp_path / "sys"
    (sys / "class").mkdir(parents=True)
    pci_devices.plug(devices, pci_devices.NVIDIA, driver="nvidia")

    def read(*gpus: nvml_library.Gpu, errors: dict[str, str] | None = None) -> NodeFabricStatus:
        variables = nvml_library.environment(tmp_path, library=nvml, gpus=gpus, errors=errors)
        found = inventory.InventoryReader(os.environ | variables, 20.0, devices).read()
        settings = Fabric(lldpcli=f"{tmp_path}/lldpcli", settle=SettleThresholds(1, 0))
        watch = FabricWatch(
            settings,
            FakeFabricSink(),
            "node-1",
            lambda: found,
            survey_file=tmp_path / "whole.gz",
            labels=dict,
            root=sys,
            clock=lambda: 0.0,
        )
        report = watch.read()
        assert report is not None
        assert report.labels.labels["gkm.io/fabric-health"] == report.status.health
        return report.status

    return read


def ailing(mask: int) -> nvml_library.Gpu:
    return {**GB200, "fabric": {**GB200["fabric"], "version": 3, "health_mask": mask, "health_summary": 2}}


@pytest.mark.parametrize(
    ("mask", "word"),
    [
        (1 << 0, "degraded bandwidth"),
        (1 << 2, "route recovery"),
        (1 << 4, "route unhealthy"),
        (1 << 6, "access timeout recovery"),
        (2 << 12, "partition not assigned"),
        (2 << 14, "fabric manager disconnected"),
        (2 << 8, "incorrect system GUID"),
        (3 << 8, "incorrect chassis serial number"),
        (4 << 8, "no partition"),
        (5 << 8, "insufficient NVLinks"),
        (6 << 8, "incompatible GPU firmware"),
        (7 << 8, "invalid location"),
        (8 << 8, "invalid GPU state"),
    ],
)
def test_each_fault_of_a_driver_has_a_message(fabric: Fabrics, mask: int, word: str) -> None:
    said = fabric(GB200, ailing(mask))

    assert said.nvlink is not None
    assert said.nvlink.health.decoded == [word]
    assert said.message == f"GPU 1: Unhealthy: {word}"
    assert said.health == "unhealthy"


STARTING = {**GB200, "fabric": {**GB200["fabric"], "state": 2}}
ELSEWHERE = {**GB200, "fabric": {**GB200["fabric"], "clique_id": 2}}


@pytest.mark.parametrize(
    ("gpus", "health", "message"),
    [
        ((GB200, GB200), "healthy", ""),
        ((GB200, STARTING), "degraded", "NVLink registration is InProgress"),
        ((GB200, ELSEWHERE), "unhealthy", "the GPUs name different domains"),
        ((H100,), "none", "no GPU is attached to an NVLink fabric"),
    ],
)
def test_a_node_is_one_of_four_healths_and_says_why(
    fabric: Fabrics, gpus: tuple[nvml_library.Gpu, ...], health: str, message: str
) -> None:
    said = fabric(*gpus)

    assert said.health == health
    assert message in said.message
    assert bool(said.domain) == (health == "healthy")
