"""What a GPU vendor has to offer. One small file each; a new vendor is a new file and a line in probe.py.

Indices are the vendor's own, from 0: NVML's order for NVIDIA, amdsmi's for AMD. Where a machine has GPUs of both, those
of the later vendor in probe.py follow behind the highest index of the earlier one, so NVIDIA's always stay NVML's.
"""

from pathlib import Path
from typing import Protocol

from gkm.gpus.values import Inventory


class Vendor(Protocol):
    """A way to read the GPUs of one vendor. Only ever called in the probe's own process."""

    def read(self, devices: Path) -> Inventory:
        """Return what is there; errors are values in the reading, and a machine without such GPUs is an empty one.

        `devices` is the directory of PCI devices: it tells a driver that is away from a machine that needs none.
        """
