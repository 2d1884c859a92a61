"""Where wishes come from and where status goes: the Kubernetes API, or a directory on a machine without it."""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from gkm.api.fabric_settings import Fabric
from gkm.images.registries.pull_secrets import Secrets

from gkm_agent import metrics
from gkm_agent.fabric import starting
from gkm_agent.fabric.watch import FabricWatch
from gkm_agent.gpu_watch import GpuWatch
from gkm_agent.options import Options
from gkm_agent.publisher import Publisher
from gkm_agent.source import CacheSource
from gkm_agent.static_sink import StaticSink
from gkm_agent.static_source import StaticSource


class NotConnected(Exception):
    """There is neither a cluster nor a directory to take wishes from."""


@dataclass(frozen=True, slots=True)
class Connected:
    """One side of the agent; `namespace` is GKM's own, `fabric` makes the part that tells of the node's fabric."""

    source: CacheSource
    publisher: Publisher
    secrets: Secrets
    namespace: str
    fabric: Callable[[Fabric, GpuWatch], FabricWatch]


def connect(chosen: Options, wake: Event) -> Connected:
    """Return what the options name.

    Raises:
        NotConnected: it is Kubernetes, and nothing says where.
    """
    return _to_directory(chosen, wake) if chosen.static is not None else _to_kubernetes(chosen, wake)


def _to_directory(chosen: Options, wake: Event) -> Connected:
    assert chosen.static is not None  # noqa: S101 -- whoever calls has looked
    source = StaticSource(chosen.static, wake)
    return Connected(
        source,
        Publisher(StaticSink(chosen.status, chosen.node)),
        source,
        "gkm-system",
        lambda settings, gpus: starting.standalone(settings, chosen.node, gpus, chosen.status),
    )


def _to_kubernetes(chosen: Options, wake: Event) -> Connected:
    # The official client is the heaviest import of all, and without Kubernetes nobody needs it.
    from gkm.kube import client  # noqa: PLC0415
    from gkm.kube.credentials import NotConfigured  # noqa: PLC0415
    from gkm.kube.secrets import KubeSecrets, own_namespace  # noqa: PLC0415

    from gkm_agent.kube_sink import KubeSink  # noqa: PLC0415
    from gkm_agent.kube_source import KubeSource  # noqa: PLC0415

    try:
        api = client.connect(str(chosen.kubeconfig) if chosen.kubeconfig else None, observe=metrics.api_answered)
    except NotConfigured as error:
        raise NotConnected(f"{error}; without Kubernetes use --static DIR") from error
    publisher = Publisher(KubeSink(api, chosen.node, lambda: source.node))
    source = KubeSource(api, chosen.node, wake, publisher.again)
    return Connected(
        source,
        publisher,
        KubeSecrets(api),
        own_namespace(),
        lambda settings, gpus: starting.in_kubernetes(settings, chosen.node, gpus, api, source),
    )
