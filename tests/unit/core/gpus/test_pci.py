"""GPUs on the PCI bus."""

from pathlib import Path

import pytest
from gkm.gpus import pci
from support.fakes import pci_devices


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0009:01:00.0", "0009:01:00.0"),
        ("00010000:00:00.0", "10000:00:00.0"),
        ("0000:c1:1f.7", "0000:c1:1f.7"),
        ("", ""),
        ("01:00.0", ""),
        ("0000:01:00.9", ""),
        ("0000:01:00.0\n", ""),
        ("N/A", ""),
    ],
)
def test_an_address_has_the_spelling_of_sysfs(address: str, expected: str) -> None:
    assert pci.normalized(address) == expected


def test_gpus_are_those_of_the_vendor_that_compute_or_display(tmp_path: Path) -> None:
    devices = tmp_path / "devices"
    pci_devices.plug(devices, pci_devices.NVIDIA, driver="nvidia")
    pci_devices.plug(devices, pci_devices.NVIDIA)
    pci_devices.plug(devices, pci_devices.NVIDIA, driver="snd_hda_intel", device_class="0x040300")
    pci_devices.plug(devices, pci_devices.NVIDIA, driver="nvidia-nvswitch", device_class="0x068000")
    pci_devices.plug(devices, pci_devices.AMD, driver="amdgpu", device_class="0x120000")
    pci_devices.plug(devices, "0x8086", driver="i915")

    assert pci.drivers_of_gpus(pci.NVIDIA, devices) == ["nvidia", ""]
    assert pci.drivers_of_gpus(pci.AMD, devices) == ["amdgpu"]


def test_a_machine_without_such_a_bus_has_no_gpus_on_it(tmp_path: Path) -> None:
    assert pci.drivers_of_gpus(pci.NVIDIA, tmp_path / "nowhere") == []


def test_a_device_that_vanishes_during_the_scan_is_skipped(tmp_path: Path) -> None:
    device = pci_devices.plug(tmp_path / "devices", pci_devices.NVIDIA, driver="nvidia")
    (device / "class").unlink()

    assert pci.drivers_of_gpus(pci.NVIDIA, tmp_path / "devices") == []
