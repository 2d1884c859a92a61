"""`gkm node detect` against `nvidia-smi`, field by field. Pure, from what the programs printed."""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gkm.gpus.groups import gpu_type
from gkm.gpus.values import Inventory

QUERY = {
    "index": "index",
    "name": "gpuType",
    "compute_cap": "arch",
    "driver_version": "driverVersion",
    "memory.total": "memoryMiB",
    "uuid": "uuid",
    "pci.bus_id": "pciAddress",
    "mig.mode.current": "mig",
    "fabric.state": "fabricState",
    "fabric.status": "fabricStatus",
}
"""Fields of nvidia-smi --query-gpu, and their names in the report."""
UNKNOWN = ("[n/a]", "n/a", "[not supported]", "")


@dataclass(frozen=True)
class FieldComparison:
    """One field of one GPU, as both programs state it."""

    gpu: int
    field: str
    gkm: str
    nvidia_smi: str | None
    """None where nvidia-smi was not run."""

    @property
    def agrees(self) -> bool:
        """Return whether both state the same, or nvidia-smi states nothing."""
        theirs = self.nvidia_smi
        return theirs is None or theirs.casefold() in UNKNOWN or self.gkm.casefold() == theirs.casefold()


def compare(detected: Mapping[str, Any], inventory: Inventory, queried: str | None) -> list[FieldComparison]:
    """Return every field of every GPU; a GPU that one of them lacks has one field `present`.

    Args:
        detected: what `gkm node detect -o json` printed.
        inventory: the reading below it, for what that command does not print.
        queried: what nvidia-smi printed as CSV without units and header; None if it was not run.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(queried or "")) if row]
    theirs = {int(row[0]): dict(zip(QUERY.values(), row, strict=True)) for row in rows}
    groups = {int(index): group for group in detected["gpus"] for index in group["ids"]}
    ours = {gpu.index: _fields(groups[gpu.index], inventory, gpu.index) for gpu in inventory.gpus}
    indices = sorted(ours) if queried is None else sorted({*ours, *theirs})
    return [found for index in indices for found in _of_gpu(index, ours, None if queried is None else theirs)]


def _of_gpu(
    index: int, ours: Mapping[int, Mapping[str, str]], theirs: Mapping[int, Mapping[str, str]] | None
) -> Iterable[FieldComparison]:
    if theirs is None:
        return [FieldComparison(index, name, value, None) for name, value in ours[index].items()]
    if index not in ours or index not in theirs:
        return [FieldComparison(index, "present", str(index in ours), str(index in theirs))]
    fields = ours[index].items()
    return [FieldComparison(index, name, value, _plain(name, theirs[index][name])) for name, value in fields]


def _fields(group: Mapping[str, Any], inventory: Inventory, index: int) -> dict[str, str]:
    gpu = next(gpu for gpu in inventory.gpus if gpu.index == index)
    fabric = group.get("fabric") or {}
    return {
        **{name: str(group.get(name, "")) for name in ("gpuType", "arch", "driverVersion", "memoryMiB")},
        "uuid": gpu.uuid,
        "pciAddress": gpu.pci_address,
        "mig": "Enabled" if gpu.mig else "Disabled",
        "fabricState": str(fabric.get("state", "")),
        "fabricStatus": str(fabric.get("status", "")),
    }


def _plain(name: str, text: str) -> str:
    """Return a value of nvidia-smi in the form of GKM."""
    match name:
        case "gpuType":
            return gpu_type(text)
        case "arch":
            return text.replace(".", "")
        case "pciAddress":
            # The domain has 8 digits there, and 4 in sysfs.
            domain, _, rest = text.partition(":")
            return f"{domain[-4:]}:{rest}"
    return text
