"""The machines whose GPUs a command checks: those in a file, or this one."""

from pathlib import Path

from gkm.api.errors import GKMError, Reason
from gkm.gpus.inventory import InventoryReader

from gkm_cli.cache import gpu_files
from gkm_cli.cache.gpu_files import NodeGPUs


def machines(file: Path | None) -> list[NodeGPUs]:
    """Return the machines in a file with their GPUs; without a file, this machine.

    Raises:
        UsageError: the file does not list GPUs.
        OSError: the file cannot be read.
        GKMError: GPU_LOST: the driver does not answer. That is not a machine without GPUs.
    """
    if file:
        return gpu_files.read(file)
    reading = InventoryReader().read()
    if reading.unreadable:
        raise GKMError(Reason.GPU_LOST, f"the GPUs of this machine cannot be read: {'; '.join(reading.errors)}")
    return [NodeGPUs("", reading.gpus)]
