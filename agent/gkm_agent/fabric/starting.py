"""How the agent gets its fabric part: one call in Kubernetes, one without."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gkm.api.fabric_settings import Fabric

from gkm_agent.fabric.watch import FabricInputs, FabricWatch
from gkm_agent.gpus import GpuWatch
from gkm_agent.standalone.fabric_sink import FileFabricSink

if TYPE_CHECKING:
    from gkm.kube.api import Api

    from gkm_agent.kubernetes.source import KubernetesSource


def in_kubernetes(settings: Fabric, node: str, gpus: GpuWatch, api: "Api", source: "KubernetesSource") -> FabricWatch:
    """Return the part that writes NodeFabric and the labels of our Node, which `source` knows."""
    from gkm_agent.kubernetes.fabric_sink import KubernetesFabricSink  # noqa: PLC0415 -- without Kubernetes nobody needs it

    def labels() -> Mapping[str, str] | None:
        return None if source.node is None else source.node.metadata.labels

    sink = KubernetesFabricSink(api, node, lambda: source.node)
    return FabricWatch(settings, FabricInputs(node, lambda: gpus.inventory, labels), sink)


def standalone(settings: Fabric, node: str, gpus: GpuWatch, directory: Path) -> FabricWatch:
    """Return the part that writes NodeFabric to a file of `directory`; without a Node there is nothing to label."""
    return FabricWatch(settings, FabricInputs(node, lambda: gpus.inventory), FileFabricSink(directory, node))
