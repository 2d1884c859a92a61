"""Every GPU vendor, each in a process of its own as in the product: without its library, and with a GPU on the bus."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.gpus import inventory
from gkm.gpus.values import Inventory
from support.fakes import pci_devices
from support.host.waiting import scaled

VENDORS = [("gkm.gpus.nvidia", pci_devices.NVIDIA), ("gkm.gpus.amd", pci_devices.AMD)]
SCRIPT = """
import sys
from importlib import import_module
from pathlib import Path
import msgspec
read = import_module(sys.argv[1]).read
first, second = read(Path(sys.argv[2])), read(Path(sys.argv[2]))
assert first == second
sys.stdout.buffer.write(msgspec.json.encode(first))
"""


def read(module: str, devices: Path) -> Inventory:
    """Return the reading of a vendor whose library is missing; the child fails if two readings differ."""
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, module, str(devices)],
        check=False,
        capture_output=True,
        timeout=scaled(60),
        env=environment,
    )
    assert run.returncode == 0, run.stderr.decode()
    return inventory.decode(run.stdout)


def test_the_contract_covers_every_vendor() -> None:
    script = "from gkm.gpus.probe import vendors; print(*(read.__module__ for read in vendors().values()))"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=scaled(60))
    assert run.stdout.split() == [module for module, _ in VENDORS]


@pytest.mark.parametrize(("module", "vendor"), VENDORS)
def test_a_machine_without_gpus_gives_an_empty_reading(tmp_path: Path, module: str, vendor: str) -> None:
    assert vendor
    assert read(module, tmp_path / "no bus") == Inventory()
    (tmp_path / "pci").mkdir()
    assert read(module, tmp_path / "pci") == Inventory()


@pytest.mark.parametrize(("module", "vendor"), VENDORS)
def test_the_gpu_of_another_vendor_is_not_an_error(tmp_path: Path, module: str, vendor: str) -> None:
    (other,) = {pci_devices.NVIDIA, pci_devices.AMD} - {vendor}
    pci_devices.plug(tmp_path / "pci", other, driver="other")
    assert read(module, tmp_path / "pci") == Inventory()


@pytest.mark.parametrize(("module", "vendor"), VENDORS)
def test_a_gpu_for_a_virtual_machine_is_not_an_error(tmp_path: Path, module: str, vendor: str) -> None:
    pci_devices.plug(tmp_path / "pci", vendor, driver="vfio-pci")
    assert read(module, tmp_path / "pci") == Inventory()
