"""Read the PCI bus: whether the machine has a GPU that a driver could serve."""

import re
from pathlib import Path

DEVICES = Path("/sys/bus/pci/devices")
NVIDIA, AMD = "0x10de", "0x1002"
_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators: https://pci-ids.ucw.cz/read/PD."""
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)


def drivers_of_gpus(vendor: str, devices: Path) -> list[str]:
    """Return for each GPU of a vendor its driver, "" for a GPU without one; [] on a machine without a PCI bus."""
    try:
        entries = sorted(devices.iterdir())
    except OSError:
        return []
    of_vendor = (device for device in entries if _read(device / "vendor") == vendor)
    return [_driver(device) for device in of_vendor if _read(device / "class").startswith(_CLASSES)]


def normalized(address: str) -> str:
    """Return a PCI address in the form of sysfs: NVML's `00000000:01:00.0` is `0000:01:00.0`; "" for an invalid one."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""
