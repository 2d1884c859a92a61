"""Where wishes come from and where status goes: the Kubernetes API, or a directory on a machine without it."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from gkm.api.fabric_settings import Fabric
from gkm.images.registries.pull_secrets import Secrets

from gkm_agent.fabric import starting
from gkm_agent.fabric.watch import FabricWatch
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces.source import CacheSource
from gkm_agent.options import Options
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.standalone.source import FileSource
from gkm_agent.standalone.status_sink import FileStatusSink
from gkm_agent.telemetry import metrics


class NotConnected(Exception):
    """There is neither a cluster nor a directory to take wishes from."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One side of the agent; `namespace` is GKM's own, `fabric` makes the part that tells of the node's fabric."""

    source: CacheSource
    publisher: StatusPublisher
    secrets: Secrets
    namespace: str
    fabric: Callable[[Fabric, GpuWatch], FabricWatch]


def connect(chosen: Options, wake: Event) -> Backend:
    """Return what the options name.

    Raises:
        NotConnected: it is Kubernetes, and nothing says where.
    """
    return _to_directory(chosen, wake) if chosen.static is not None else _to_kubernetes(chosen, wake)


def _to_directory(chosen: Options, wake: Event) -> Backend:
    assert chosen.static is not None  # noqa: S101 -- whoever calls has looked
    source = FileSource(chosen.static, wake)
    return Backend(
        source,
        StatusPublisher(FileStatusSink(chosen.status, chosen.node)),
        source,
        "gkm-system",
        lambda settings, gpus: starting.standalone(settings, chosen.node, gpus, chosen.status),
    )


def _to_kubernetes(chosen: Options, wake: Event) -> Backend:
    # The official client is the heaviest import of all, and without Kubernetes nobody needs it.
    from gkm.kube import client  # noqa: PLC0415
    from gkm.kube.credentials import NotConfigured  # noqa: PLC0415
    from gkm.kube.secrets import KubeSecrets, own_namespace  # noqa: PLC0415

    from gkm_agent.kubernetes.source import KubernetesSource  # noqa: PLC0415
    from gkm_agent.kubernetes.status_sink import KubernetesStatusSink  # noqa: PLC0415

    try:
        api = client.connect(str(chosen.kubeconfig) if chosen.kubeconfig else None, observe=metrics.api_answered)
    except NotConfigured as error:
        raise NotConnected(f"{error}; without Kubernetes use --static DIR") from error
    publisher = StatusPublisher(KubernetesStatusSink(api, chosen.node, lambda: source.node))
    source = KubernetesSource(api, chosen.node, wake, publisher.rewrite_all)
    return Backend(
        source,
        publisher,
        KubeSecrets(api),
        own_namespace(),
        lambda settings, gpus: starting.in_kubernetes(settings, chosen.node, gpus, api, source),
    )
