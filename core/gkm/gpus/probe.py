"""The child process that reads the GPUs and prints one JSON object: `python -m gkm.gpus.probe [PCI DEVICES]`.

It is a process of its own because an open NVML handle blocks driver upgrades (docs/design/node-state.md).
A new vendor is one file with a function, and a line in `vendors`. Indices are the vendor's own, from 0: NVML's order
for NVIDIA, amdsmi's for AMD. On a machine with GPUs of both, indices of the later vendor follow the highest index of
the earlier vendor, so NVIDIA's always equal NVML's.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gkm.gpus import pci
from gkm.gpus.values import MAX_GPUS, Inventory, printable

Vendor = Callable[[Path], Inventory]
"""Returns the GPUs of one vendor: errors are values in the reading, and a machine without such GPUs gives an empty one.

The argument is the directory of PCI devices, which distinguishes a missing driver from a machine without such GPUs.
"""


def vendors() -> dict[str, Vendor]:
    """Return the reader of each vendor by its name, in the order in which GPUs are numbered."""
    from gkm.gpus import amd, nvidia  # noqa: PLC0415 -- they load the bindings; only the probe's process may

    return {"Nvidia": nvidia.read, "Amd": amd.read}


def read_vendor(name: str, vendor: Vendor, devices: Path) -> Inventory:
    """Return the GPUs of one vendor; an exception in its library becomes an error in the result."""
    try:
        return vendor(devices)
    except Exception as error:  # noqa: BLE001 -- the agent receives any failure as a value
        return Inventory(errors=(printable(f"{name}: {type(error).__name__}: {error}"),))


def merge(readings: Sequence[Inventory]) -> Inventory:
    """Return the readings of all vendors as one inventory.

    The GPU indices of a vendor follow those of the one before.
    """
    combined = Inventory()
    for reading in readings:
        first = max((gpu.index + 1 for gpu in combined.gpus), default=0)
        gpus = tuple(replace(gpu, index=first + gpu.index) for gpu in reading.gpus if first + gpu.index < MAX_GPUS)
        combined = Inventory(combined.gpus + gpus, combined.errors + reading.errors)
    return combined


def main() -> None:
    """Read the GPUs and print them as JSON."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    devices = Path(sys.argv[1]) if len(sys.argv) > 1 else pci.DEVICES
    reading = merge([read_vendor(name, vendor, devices) for name, vendor in vendors().items()])
    with os.fdopen(stdout, "wb") as file:
        file.write(msgspec.json.encode(reading))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
