"""What a GPU vendor has to offer. One small file each; a new vendor is a new file and a line in probe.py."""

from typing import Protocol

from gkm.gpus.values import Inventory


class Vendor(Protocol):
    """A way to read the GPUs of one vendor. Only ever called in the probe's own process."""

    def read(self) -> Inventory:
        """Return what is there; errors are values in the reading, and a machine without such GPUs is an empty one."""
