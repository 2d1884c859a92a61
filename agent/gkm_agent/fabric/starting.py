"""How the agent gets its fabric part: one call in Kubernetes, one without."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gkm.api.fabric_settings import Fabric

from gkm_agent.fabric.static_fabric import StaticFabric
from gkm_agent.fabric.watch import FabricWatch, Place
from gkm_agent.gpu_watch import GpuWatch

if TYPE_CHECKING:
    from gkm.kube.api import Api

    from gkm_agent.kube_source import KubeSource


def in_kubernetes(settings: Fabric, node: str, gpus: GpuWatch, api: "Api", source: "KubeSource") -> FabricWatch:
    """Return the part that writes NodeFabric and the labels of our Node, which `source` knows."""
    from gkm_agent.fabric.kube_fabric import KubeFabric  # noqa: PLC0415 -- without Kubernetes nobody needs it

    def labels() -> Mapping[str, str] | None:
        return None if source.node is None else source.node.metadata.labels

    sink = KubeFabric(api, node, lambda: source.node)
    return FabricWatch(settings, Place(node, lambda: gpus.inventory, labels), sink)


def standalone(settings: Fabric, node: str, gpus: GpuWatch, directory: Path) -> FabricWatch:
    """Return the part that writes NodeFabric to a file of `directory`; without a Node there is nothing to label."""
    return FabricWatch(settings, Place(node, lambda: gpus.inventory), StaticFabric(directory, node))
