"""GPUs with fabrics, trees like sysfs, and reports: what the tests of the agent's fabric part are made of."""

from collections.abc import Mapping
from pathlib import Path

from gkm.api.fabrics import NodeFabricStatus
from gkm.gpus.values import Fault, Gpu, GpuFabricInfo, Inventory
from gkm_agent.fabric.labels import WantedLabels
from gkm_agent.fabric.report import FabricReport

UUID, OTHER_UUID = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31", "0f0e0d0c-0b0a-4998-8776-655443322110"
DOMAIN = f"{UUID}.1"
ATTACHED = GpuFabricInfo(UUID, 1, "Completed", "Success", "Healthy", 0x11AA, "Healthy")
LOST = Fault("nvmlDeviceGetCudaComputeCapability", "GPU_IS_LOST", "GPU is lost")


def gpus(*fabrics: GpuFabricInfo | None, model: str = "NVIDIA GB200") -> Inventory:
    """Return a reading of GPUs with these fabrics."""
    return Inventory(
        tuple(
            Gpu(index, "cuda", model=model, arch="100", warp_size=32, fabric=fabric)
            for index, fabric in enumerate(fabrics)
        )
    )


def lost(index: int) -> Gpu:
    return Gpu(index, "cuda", model="NVIDIA GB200", faults=(LOST,))


PORT = {
    "link_layer": "InfiniBand\n",
    "gids/0": "fe80:0000:0000:0000:e09d:7303:00af:125f\n",
    "lid": "0x29f\n",
    "state": "4: ACTIVE\n",
    "rate": "400 Gb/sec (4X NDR)\n",
}
NODE_GUID = "e09d:7303:00af:125e\n"


def adapter(
    sys: Path, device: str, ports: Mapping[int, Mapping[str, str]] | None = None, node_guid: str = NODE_GUID
) -> Path:
    """Make an adapter as the kernel shows it: a directory of /sys/devices, and a link to it in /sys/class."""
    place = sys / "devices" / "pci0000:00" / device / "infiniband" / device
    place.mkdir(parents=True)
    (place / "node_guid").write_text(node_guid)
    for number, files in ({1: PORT} if ports is None else ports).items():
        for name, text in files.items():
            path = place / "ports" / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    link = sys / "class" / "infiniband" / device
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../devices/pci0000:00/{device}/infiniband/{device}")
    return place


def interface(
    sys: Path, name: str, *, hardware: bool = True, virtual_function: bool = False, address: str = ""
) -> None:
    """Make a network interface as the kernel shows it."""
    place = sys / "devices" / "net-of" / name
    (place / "device").mkdir(parents=True) if hardware else place.mkdir(parents=True)
    if virtual_function:
        (place / "device" / "physfn").mkdir()
    (place / "address").write_text(f"{address or '02:00:00:00:00:99'}\n")
    link = sys / "class" / "net" / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../devices/net-of/{name}")


def report(domain: str = DOMAIN, health: str = "healthy", **labels: str) -> FabricReport:
    """Return a report with the labels that say the same."""
    said = {"gkm.io/fabric-health": health} | ({"gkm.io/fabric-domain": domain} if domain else {})
    status = NodeFabricStatus(domain=domain, health=health)  # type: ignore[arg-type]
    return FabricReport(status, WantedLabels(said | labels))
