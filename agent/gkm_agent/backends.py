"""The two backends of the agent: the Kubernetes API, or directories on a machine without Kubernetes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from gkm.api.fabric_settings import Fabric
from gkm.images.registries.pull_secrets import Secrets

from gkm_agent.fabric.watch import FabricInputs, FabricWatch
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces.source import CacheSource
from gkm_agent.options import Options
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.standalone.sinks import FileFabricSink, FileStatusSink
from gkm_agent.standalone.source import FileSource
from gkm_agent.telemetry import metrics


class NotConnected(Exception):
    """The agent has neither a cluster nor a directory of manifests."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The parts of one backend. `namespace` is the namespace of GKM itself; `fabric` creates the fabric watch."""

    source: CacheSource
    publisher: StatusPublisher
    secrets: Secrets
    namespace: str
    fabric: Callable[[Fabric, GpuWatch], FabricWatch]


def connect(options: Options, wake: Event) -> Backend:
    """Return the backend that the options choose.

    Raises:
        NotConnected: the options choose Kubernetes, but neither they nor the environment name a cluster.
    """
    return _standalone(options, wake) if options.static is not None else _kubernetes(options, wake)


def _standalone(options: Options, wake: Event) -> Backend:
    assert options.static is not None  # noqa: S101 -- checked by `connect`
    source = FileSource(options.static, wake)

    def fabric(settings: Fabric, gpus: GpuWatch) -> FabricWatch:
        inputs = FabricInputs(options.node, lambda: gpus.inventory)
        return FabricWatch(settings, inputs, FileFabricSink(options.status, options.node))

    publisher = StatusPublisher(FileStatusSink(options.status, options.node))
    return Backend(source, publisher, source, "gkm-system", fabric)


def _kubernetes(options: Options, wake: Event) -> Backend:
    # The official client is the heaviest import of all, and only this backend needs it.
    from gkm.kube import client  # noqa: PLC0415
    from gkm.kube.credentials import NotConfigured  # noqa: PLC0415
    from gkm.kube.secrets import KubeSecrets, own_namespace  # noqa: PLC0415

    from gkm_agent.kubernetes.fabric_sink import KubernetesFabricSink  # noqa: PLC0415
    from gkm_agent.kubernetes.source import KubernetesSource  # noqa: PLC0415
    from gkm_agent.kubernetes.status_sink import KubernetesStatusSink  # noqa: PLC0415

    try:
        api = client.connect(str(options.kubeconfig) if options.kubeconfig else None, observe=metrics.api_answered)
    except NotConfigured as error:
        raise NotConnected(f"{error}; without Kubernetes use --static DIR") from error
    publisher = StatusPublisher(KubernetesStatusSink(api, options.node, lambda: source.node))
    source = KubernetesSource(api, options.node, wake, publisher.rewrite_all)

    def labels() -> Mapping[str, str] | None:
        return None if source.node is None else source.node.metadata.labels

    def fabric(settings: Fabric, gpus: GpuWatch) -> FabricWatch:
        inputs = FabricInputs(options.node, lambda: gpus.inventory, labels)
        return FabricWatch(settings, inputs, KubernetesFabricSink(api, options.node, lambda: source.node))

    return Backend(source, publisher, KubeSecrets(api), own_namespace(), fabric)
