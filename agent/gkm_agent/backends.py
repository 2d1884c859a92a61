"""The two backends of the agent: the Kubernetes API, or directories on a machine without Kubernetes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from gkm.images.registries.pull_secrets import Secrets

from gkm_agent.fabric.report import FabricSink
from gkm_agent.interfaces import CacheSource
from gkm_agent.options import Options
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.standalone.sinks import FileFabricSink, FileStatusSink
from gkm_agent.standalone.source import FileSource
from gkm_agent.telemetry import metrics


class NotConnected(Exception):
    """The agent has neither a cluster nor a directory of manifests."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The parts of one backend. `namespace` is the namespace of GKM itself.

    `node_labels` returns the labels of this agent's Node, None while it is unknown or without Kubernetes.
    """

    source: CacheSource
    publisher: StatusPublisher
    secrets: Secrets
    namespace: str
    fabric_sink: FabricSink
    node_labels: Callable[[], Mapping[str, str] | None]


def connect(options: Options, wake: Event) -> Backend:
    """Return the backend that the options choose.

    Raises:
        NotConnected: the options choose Kubernetes, but neither they nor the environment name a cluster.
    """
    return _standalone(options, wake) if options.static is not None else _kubernetes(options, wake)


def _standalone(options: Options, wake: Event) -> Backend:
    assert options.static is not None  # noqa: S101 -- checked by `connect`
    source = FileSource(options.static, wake)
    publisher = StatusPublisher(FileStatusSink(options.status, options.node))
    fabric_sink = FileFabricSink(options.status, options.node)
    return Backend(source, publisher, source, "gkm-system", fabric_sink, lambda: None)


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

    fabric_sink = KubernetesFabricSink(api, options.node, lambda: source.node)
    return Backend(source, publisher, KubeSecrets(api), own_namespace(), fabric_sink, labels)
