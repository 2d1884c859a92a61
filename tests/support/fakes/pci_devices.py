"""A directory of PCI devices as /sys/bus/pci/devices is one: what a machine has, whatever its drivers say."""

from pathlib import Path

NVIDIA, AMD = "0x10de", "0x1002"


def plug(devices: Path, vendor: str, *, driver: str = "", device_class: str = "0x030200", address: str = "") -> Path:
    """Add a device that `driver` holds ("" for none); return its directory."""
    devices.mkdir(parents=True, exist_ok=True)
    device = devices / (address or f"0000:{len(list(devices.iterdir())) + 1:02x}:00.0")
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{device_class}\n")
    if driver:
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    return device
