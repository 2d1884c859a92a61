"""The Protocol of a GPU vendor. Each vendor is one small file, and a line in probe.py.

Indices are the vendor's own, from 0: NVML's order for NVIDIA, amdsmi's for AMD. On a machine with GPUs of both, those
of the later vendor in probe.py follow the highest index of the earlier one, so NVIDIA's always equal NVML's.
"""

from pathlib import Path
from typing import Protocol

from gkm.gpus.values import Inventory


class Vendor(Protocol):
    """A way to read the GPUs of one vendor. Called only in the probe's own process."""

    def read(self, devices: Path) -> Inventory:
        """Return the GPUs; errors are values in the reading, and a machine without such GPUs gives an empty reading.

        `devices` is the directory of PCI devices: it distinguishes a missing driver from a machine that needs none.
        """
