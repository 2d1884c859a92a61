"""The command gkm-agent: assembles the parts of the agent, runs them, and stops them in bounded time.

The first SIGTERM or SIGINT starts a clean stop and an alarm, which ends the process even if a part hangs.

There are two backends: the Kubernetes API, or directories on a machine without Kubernetes.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event

from gkm.api import config as configuration
from gkm.api import msgspec_warmup
from gkm.api.config import Config, ConfigInvalid
from gkm.api.installation import NAMESPACE
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.values import Inventory
from gkm.hoststate import locks
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import configure as configure_logs
from gkm.hoststate.logs import fields
from gkm.images.registries.credentials import PullSecrets, Secrets

from gkm_agent.caches.approvals import policy_of
from gkm_agent.capturing.destination import RegistryDestination
from gkm_agent.capturing.steps import CaptureSteps
from gkm_agent.capturing.worker import CaptureWorker
from gkm_agent.fabric.report import FabricSink
from gkm_agent.fabric.watch import FabricWatch
from gkm_agent.gpus import GpuWatch
from gkm_agent.interfaces import CacheSource
from gkm_agent.options import Options, parse
from gkm_agent.pulls.images import CacheImages, NodeImages
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.report.publisher import StatusPublisher
from gkm_agent.standalone.sinks import FileFabricSink, FileStatusSink
from gkm_agent.standalone.source import FileSource
from gkm_agent.store import node_cleanup
from gkm_agent.store.captures import CapturesInUse
from gkm_agent.store.pointers import PointerStore
from gkm_agent.telemetry import metrics
from gkm_agent.telemetry.health import Heartbeat
from gkm_agent.telemetry.server import served

_LOG = logging.getLogger(__name__)
OK, FAILED, NOT_READY = 0, 1, 3
SYNC_SECONDS = 30.0
FLUSH_SECONDS = 10.0
POLL_SECONDS = 0.2
"""Interval of the check for a stop signal during the first reading of the GPUs, which a hanging driver prolongs."""
PUBLISHER_SECONDS = 2.0
CAPTURE_SECONDS = 2.0
END_SECONDS = 25
"""Seconds from SIGTERM to the end of the process; less than the kubelet's grace period (deploy/base). The next start
cleans up and repeats unfinished work, as after a kill."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything outside this process that the agent uses.

    Registries with their Secrets, the GPUs, and the target of captures.
    """

    images: Callable[[PullSecrets], CacheImages]
    read_gpus: Callable[[], Inventory]
    destination: Callable[[PullSecrets], RegistryDestination]
    """The registry that images of captures are pushed to."""


def main(arguments: list[str] | None = None) -> None:
    """Run the agent.

    Exit with 0, 1 (failed), 2 (wrong usage) or 3 (--once: a cache is not Ready; --remove-state: volumes are mounted).
    """
    options = parse(arguments)
    configure_logs(options.log_level)
    stop, wake = Event(), Event()

    def end(*_: object) -> None:
        stop.set()
        wake.set()
        signal.alarm(END_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        if options.remove_state:
            node_cleanup.remove_state(options.layout, options.kubelet)
            sys.exit(OK)
        config = configuration.load(options.config)
        with locks.process_lock(options.layout.process_lock("agent")):
            status = work(options, config, dependencies(config, options.layout), stop, wake)
        sys.exit(status)
    except node_cleanup.VolumesMounted as error:
        _LOG.error(
            "pods use volumes of GKM on this node, none of its files removed, tried again", extra=fields(why=str(error))
        )
        sys.exit(NOT_READY)
    except node_cleanup.StillRunning as error:
        _LOG.error("a process of GKM runs on this node, none of its files removed", extra=fields(why=str(error)))
    except locks.LockBusy:
        _LOG.error(
            "another gkm-agent runs on this state directory, this one ends",
            extra=fields(state=str(options.layout.state)),
        )
    except (ConfigInvalid, NotConnected, OSError) as error:
        _LOG.error("agent failed, process ends", extra=fields(why=str(error)))
    sys.exit(FAILED)


def work(options: Options, config: Config, outside: Dependencies, stop: Event, wake: Event) -> int:
    """Run until `stop` is set, or with --once until no work is left; return the exit status."""
    metrics.record_build()
    node_cleanup.prepare(options.layout)
    backend = connect(options, wake)
    msgspec_warmup.warm_up()
    source, publisher = backend.source, backend.publisher
    gpus = GpuWatch(outside.read_gpus, wake, options.gpu_seconds)
    fabric = FabricWatch(
        config.fabric,
        backend.fabric_sink,
        options.node,
        lambda: gpus.inventory,
        survey_file=options.layout.survey,
        labels=backend.node_labels,
    )
    heartbeat = Heartbeat()
    secrets = PullSecrets(backend.secrets, config.registries, backend.namespace)
    captures_in_use = CapturesInUse()
    steps = CaptureSteps(
        options.layout, config.capture, outside.destination(secrets), lambda: gpus.inventory, stop=Event()
    )
    captures = CaptureWorker(steps, captures_in_use, wake.set, node=options.node)
    agent = Reconciler(
        store=PointerStore(options.layout),
        source=source,
        images=outside.images(secrets),
        gpus=gpus,
        publisher=publisher,
        policy=policy_of(config.verification),
        wake=wake,
        heartbeat=heartbeat,
        bounds=config.store,
        capture=config.capture,
        captures_in_use=captures_in_use,
        captures=captures.reports,
        report_ready=fabric.ready,
        serve_revoked=config.verification.when_revoked == "keep",
    )
    _LOG.info("agent started", extra=fields(node=options.node, state=str(options.layout.state)))
    with served(options, lambda: heartbeat.vitals(listed=source.wait(0), gpus=gpus.wait(0))):
        # GPUs first: a child process reads them while the source reads the caches.
        for part in (gpus, source, publisher):
            part.start()
        _wait_for_gpus(gpus, stop)
        fabric.start()
        try:
            ready = True
            if options.once:
                ready = source.wait(SYNC_SECONDS) and agent.settle(stop)
            else:
                captures.start()
                agent.run(stop)
            written = publisher.flush(FLUSH_SECONDS)
        finally:
            captures.stop(CAPTURE_SECONDS)
            gpus.stop()
            fabric.stop()
            source.stop()
            publisher.stop(PUBLISHER_SECONDS)
    _LOG.info("agent stopped", extra=fields(node=options.node))
    return OK if not options.once or (ready and written) else NOT_READY


def _wait_for_gpus(gpus: GpuWatch, stop: Event) -> None:
    """Wait for the first reading: before it, every cache would be Pending for the GPUs."""
    while not (gpus.wait(POLL_SECONDS) or stop.is_set()):
        continue


def dependencies(config: Config, layout: Layout) -> Dependencies:
    """Return the access to the configured registries and to the GPUs of this machine."""
    reader = InventoryReader()

    def read_gpus() -> Inventory:
        inventory = reader.read()
        metrics.gpus_read(inventory)
        return inventory

    return Dependencies(
        lambda secrets: NodeImages.of(config, layout, secrets),
        read_gpus,
        lambda secrets: RegistryDestination(config, secrets, os.environ),
    )


class NotConnected(Exception):
    """The options name no directory of manifests, and no cluster is found."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The source and sinks for one backend: Kubernetes, or a directory. `namespace` is the namespace of GKM itself.

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
        NotConnected: the options choose Kubernetes, but they and the environment name no cluster.
    """
    return _standalone(options, wake) if options.static is not None else _kubernetes(options, wake)


def _standalone(options: Options, wake: Event) -> Backend:
    assert options.static is not None  # noqa: S101 -- checked by `connect`
    source = FileSource(options.static, wake)
    publisher = StatusPublisher(FileStatusSink(options.status, options.node))
    fabric_sink = FileFabricSink(options.status, options.node)
    return Backend(source, publisher, source, NAMESPACE, fabric_sink, lambda: None)


def _kubernetes(options: Options, wake: Event) -> Backend:
    # The official client is the heaviest import of all, and only this backend needs it.
    from gkm.kube import client  # noqa: PLC0415
    from gkm.kube.credentials import NotConfigured  # noqa: PLC0415
    from gkm.kube.secrets import KubeSecrets, own_namespace  # noqa: PLC0415

    from gkm_agent.kubernetes.sinks import KubernetesFabricSink, KubernetesStatusSink  # noqa: PLC0415
    from gkm_agent.kubernetes.source import KubernetesSource  # noqa: PLC0415

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


if __name__ == "__main__":
    main()
