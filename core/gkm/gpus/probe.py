"""The child that reads the GPUs, prints one JSON object and ends: `python -m gkm.gpus.probe`.

It ends because an open NVML handle blocks driver upgrades (docs/design/node-state.md).
"""

import os
import sys

import msgspec

from gkm.gpus.values import Inventory, printable
from gkm.gpus.vendor import Vendor


def vendors() -> list[Vendor]:
    """Return every vendor whose binding is installed."""
    from gkm.gpus.nvidia import Nvidia  # noqa: PLC0415 -- loads the binding; only the probe's process may

    return [Nvidia()]


def reading_of(vendor: Vendor) -> Inventory:
    """Return what a vendor reads; a defect in its binding must not hide the GPUs of another."""
    try:
        return vendor.read()
    except Exception as error:  # noqa: BLE001 -- whatever it is, the agent must learn of it as a value
        return Inventory(errors=(printable(f"{type(vendor).__name__}: {type(error).__name__}: {error}"),))


def merged(readings: list[Inventory]) -> Inventory:
    """Return the readings of all vendors as one."""
    return Inventory(
        gpus=tuple(gpu for reading in readings for gpu in reading.gpus),
        errors=tuple(error for reading in readings for error in reading.errors),
    )


def main() -> None:
    """Read and print. What a driver's library prints goes to stderr: stdout is ours alone."""
    answer = os.dup(1)
    os.dup2(2, 1)
    reading = merged([reading_of(vendor) for vendor in vendors()])
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(reading))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
