"""What is known of the GPUs of a machine, as values: what the probe prints and the agent decides with."""

from typing import Annotated

from msgspec import Meta, Struct

MAX_GPUS = 1024
# The probe's output comes from drivers and firmware: bounded, printable ASCII, or the reading as a whole is refused.
Text = Annotated[str, Meta(max_length=256, pattern=r"^[\x20-\x7e]*\Z")]
Index = Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
Size = Annotated[int, Meta(ge=0, lt=1 << 40)]

FATAL_CODES = frozenset({"GPU_IS_LOST", "RESET_REQUIRED"})
"""NVML says so of a GPU that runs nothing until somebody acts, however much of it can still be read."""


class Fault(Struct, frozen=True):
    """A call about one GPU that failed: `code` is NVML's name without NVML_ERROR_, `message` NVML's own words."""

    call: Text
    code: Text
    message: Text


class Fabric(Struct, frozen=True):
    """How a GPU is attached to NVLink (nvml.h, nvmlGpuFabricInfo_v3_t); texts are empty where NVML does not say."""

    cluster_uuid: Text = ""
    clique_id: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    state: Text = ""
    status: Text = ""
    health: Text = ""


class Gpu(Struct, frozen=True):
    """One GPU. `arch` is the compute capability without a dot ("90" for sm_90); empty when it could not be read.

    `uuid`, `pci_address`, `mig` and `cuda_driver_version` are part of what detection reports (issue 5); no decision
    of the agent reads them yet.
    """

    index: Index
    backend: Text
    uuid: Text = ""
    model: Text = ""
    driver_version: Text = ""
    cuda_driver_version: Text = ""
    arch: Text = ""
    warp_size: Index = 0
    memory_mib: Size = 0
    pci_address: Text = ""
    mig: bool = False
    fabric: Fabric | None = None
    faults: Annotated[tuple[Fault, ...], Meta(max_length=32)] = ()

    @property
    def unusable(self) -> Fault | None:
        """Return why nothing can be promised of this GPU: it is lost, or what it is could not be read."""
        fatal = next((fault for fault in self.faults if fault.code in FATAL_CODES), None)
        if fatal is not None or self.arch:
            return fatal
        return next(iter(self.faults), Fault("nvmlDeviceGetCudaComputeCapability", "NO_DATA", "no answer"))


class Inventory(Struct, frozen=True):
    """One reading. Without GPUs and without errors it says: this machine has no GPU."""

    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=MAX_GPUS)] = ()
    errors: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()

    @property
    def driver_version(self) -> str:
        """Return the driver's version, "" without a GPU: one kernel module drives all GPUs of a vendor."""
        return next((gpu.driver_version for gpu in self.gpus if gpu.driver_version), "")

    @property
    def unreadable(self) -> bool:
        """Return whether the reading failed as a whole: that there is no GPU is not what it says."""
        return not self.gpus and bool(self.errors)


def printable(text: str, limit: int = 256) -> str:
    """Return a text from a driver or a label so that it can stand in a message: one line, ASCII, bounded."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
