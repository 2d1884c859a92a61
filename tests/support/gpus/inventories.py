"""The NVML library, built once a session."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from gkm.gpus import inventory
from gkm.gpus.values import Inventory
from support.fakes import nvml_library, pci_devices

Reading = Callable[..., Inventory]


@pytest.fixture(scope="session")
def nvml() -> Path:
    return nvml_library.build()


@pytest.fixture
def reading(nvml: Path, tmp_path: Path) -> Reading:
    """Return a function that reads a machine through the real binding and the real child process.

    Its PCI bus shows one GPU that the driver `held_by` holds; None is a bus without GPUs.
    """
    devices = tmp_path / "pci"

    def read(
        *gpus: nvml_library.Gpu,
        timeout: float = 20.0,
        errors: Mapping[str, str] | None = None,
        held_by: str | None = "nvidia",
    ) -> Inventory:
        shutil.rmtree(devices, ignore_errors=True)
        if held_by is not None:
            pci_devices.plug(devices, pci_devices.NVIDIA, driver=held_by)
        variables = nvml_library.environment(tmp_path, library=nvml, gpus=gpus, errors=errors)
        return inventory.InventoryReader(os.environ | variables, timeout, devices).read()

    return read
