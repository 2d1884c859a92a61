"""The GPUs of a machine as values: the output of the probe, and the input of the agent's decisions."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

MAX_GPUS = 1024
MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS of nvml.h 13."""
# The probe's output comes from drivers and firmware: bounded, printable ASCII, or the reading as a whole is refused.
Text = Annotated[str, Meta(max_length=256, pattern=r"^[\x20-\x7e]*\Z")]
Index = Annotated[int, Meta(ge=0, lt=MAX_GPUS)]
Size = Annotated[int, Meta(ge=0, lt=1 << 40)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]

MAX_FAULTS = 32
FATAL_CODES = frozenset({"GPU_IS_LOST", "RESET_REQUIRED", "INSUFFICIENT_POWER", "GPU_NOT_FOUND"})
"""NVML error codes of a GPU that runs no work until an administrator acts, even if some of its data is readable."""


class Fault(Struct, frozen=True):
    """A failed driver call about one GPU: `code` is the vendor's name of the error, `message` the vendor's text.

    Names lose their prefix: NVML_ERROR_GPU_IS_LOST is GPU_IS_LOST, AMDSMI_STATUS_BUSY is BUSY.
    """

    call: Text
    code: Text
    message: Text


class GpuFabricInfo(Struct, frozen=True):
    """The NVLink attachment of a GPU (nvml.h, nvmlGpuFabricInfo_v4_t); texts are empty where NVML has no value.

    `health` is for people, made from `health_mask` and `health_summary`.
    """

    cluster_uuid: Text = ""
    clique_id: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    state: Text = ""
    status: Text = ""
    health: Text = ""
    health_mask: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0
    health_summary: Text = ""


class LinkErrors(Struct, frozen=True):
    """NVML's error counts of an NVLink since the driver was loaded; None for a count that NVML does not have."""

    link: Annotated[int, Meta(ge=0, lt=MAX_LINKS)]
    replays: Count | None = None
    """Packets that were sent again."""
    recoveries: Count | None = None
    """Times that the link went down and was trained again, or not."""


class Gpu(Struct, frozen=True):
    """One GPU. `arch` is "90" for sm_90, or "gfx942"; empty when it could not be read.

    `pci_address` has the form of sysfs (`0000:01:00.0`). A GPU in MIG mode is one GPU: its MIG devices have its
    architecture, so a cache that fits it fits them.
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
    fabric: GpuFabricInfo | None = None
    links: Annotated[tuple[LinkErrors, ...], Meta(max_length=MAX_LINKS)] = ()
    faults: Annotated[tuple[Fault, ...], Meta(max_length=MAX_FAULTS)] = ()

    @property
    def fatal_fault(self) -> Fault | None:
        """Return the fault that makes the GPU unusable: it is lost, or its model could not be read. None otherwise."""
        fatal = next((fault for fault in self.faults if fault.code in FATAL_CODES), None)
        if fatal is not None or (self.backend and self.arch and self.warp_size):
            return fatal
        return next(iter(self.faults), Fault("reading", "NO_DATA", "the driver did not report the kind of GPU"))

    @property
    def comparable(self) -> "Gpu":
        """Return this GPU without values that change every second."""
        return replace(self, links=())


class Inventory(Struct, frozen=True):
    """The GPUs of one reading of the machine. No GPUs and no errors mean a machine without GPUs."""

    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=MAX_GPUS)] = ()
    errors: Annotated[tuple[Text, ...], Meta(max_length=32)] = ()

    @property
    def driver_version(self) -> str:
        """Return the driver's version, "" without a GPU: one kernel module drives all GPUs of a vendor."""
        return next((gpu.driver_version for gpu in self.gpus if gpu.driver_version), "")

    @property
    def unreadable(self) -> bool:
        """Return whether the whole reading failed; it then does not mean that the machine has no GPUs."""
        return bool(self.errors) and all(gpu.fatal_fault for gpu in self.gpus)

    @property
    def comparable(self) -> "Inventory":
        """Return this reading without values that change every second, for comparison with another."""
        return replace(self, gpus=tuple(gpu.comparable for gpu in self.gpus))


def printable(text: str, limit: int = 256) -> str:
    """Return a text from a driver or a label as one line of bounded printable ASCII."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
