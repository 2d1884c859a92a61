"""The child that reads the GPUs, prints one JSON object and ends: `python -m gkm.gpus.probe [PCI DEVICES]`.

It ends because an open NVML handle blocks driver upgrades (docs/design/node-state.md).
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gkm.gpus import pci
from gkm.gpus.values import MAX_GPUS, Inventory, printable
from gkm.gpus.vendor import Vendor


def vendors() -> list[Vendor]:
    """Return every vendor, in the order of their indices."""
    from gkm.gpus.amd import Amd  # noqa: PLC0415 -- loads the binding; only the probe's process may
    from gkm.gpus.nvidia import Nvidia  # noqa: PLC0415 -- the same

    return [Nvidia(), Amd()]


def read_vendor(vendor: Vendor, devices: Path) -> Inventory:
    """Return what a vendor reads; a defect in its binding must not hide the GPUs of another."""
    try:
        return vendor.read(devices)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the agent must learn of it as a value
        return Inventory(errors=(printable(f"{type(vendor).__name__}: {type(error).__name__}: {error}"),))


def merge(readings: Sequence[Inventory]) -> Inventory:
    """Return the readings of all vendors as one: the indices of each follow behind those before it."""
    combined = Inventory()
    for reading in readings:
        first = max((gpu.index + 1 for gpu in combined.gpus), default=0)
        gpus = tuple(replace(gpu, index=first + gpu.index) for gpu in reading.gpus if first + gpu.index < MAX_GPUS)
        combined = Inventory(combined.gpus + gpus, combined.errors + reading.errors)
    return combined


def main() -> None:
    """Read and print. What a driver's library prints goes to stderr: stdout is ours alone."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    devices = Path(sys.argv[1]) if len(sys.argv) > 1 else pci.DEVICES
    reading = merge([read_vendor(vendor, devices) for vendor in vendors()])
    with os.fdopen(stdout, "wb") as file:
        file.write(msgspec.json.encode(reading))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
