"""The command gkm-agent: puts the parts together, runs them, ends in bounded time."""

import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from gkm.api import config as configuration
from gkm.api import msgspec_warmup as first_use
from gkm.api.config import Config, ConfigInvalid
from gkm.gpus.inventory import InventoryReader
from gkm.gpus.values import Inventory
from gkm.hoststate import locks
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import configure as start_logs
from gkm.hoststate.logs import fields
from gkm.images.registries.pull_secrets import PullSecrets

from gkm_agent import options
from gkm_agent.backends import NotConnected, connect
from gkm_agent.caches.approvals import policy_of
from gkm_agent.gpus import GpuWatch
from gkm_agent.options import Options
from gkm_agent.pulls.images import CacheImages, NodeImages
from gkm_agent.reconcile.reconciler import Reconciler
from gkm_agent.store import startup as cleaning
from gkm_agent.store.pointers import PointerStore
from gkm_agent.telemetry import metrics
from gkm_agent.telemetry.health import Heartbeat
from gkm_agent.telemetry.server import served

_LOG = logging.getLogger(__name__)

OK, FAILED, NOT_READY = 0, 1, 3
SYNC_SECONDS = 30.0
FLUSH_SECONDS = 10.0
LOOK_SECONDS = 0.2
"""While the GPUs are read for the first time, which a hanging driver makes long, so often somebody may end us."""
PUBLISHER_SECONDS = 2.0
END_SECONDS = 25
"""From SIGTERM on, whatever hangs: less than kubelet gives a pod (deploy/base). What is cut off then is found and
finished by the next start, as after any death."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What lies outside this process: registries, read with the Secrets that open them, and the GPUs."""

    images: Callable[[PullSecrets], CacheImages]
    read_gpus: Callable[[], Inventory]


def main(arguments: list[str] | None = None) -> None:
    """Run the agent; the exit status is 0, 1 (it cannot work), 2 (used wrongly) or 3 (--once: not all is Ready)."""
    chosen = options.parse(arguments)
    start_logs(chosen.log_level)
    stop, wake = Event(), Event()

    def end(*_: object) -> None:
        stop.set()
        wake.set()
        signal.alarm(END_SECONDS)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        config = configuration.load(chosen.config)
        with locks.process_lock(chosen.layout.state / "locks" / "agent"):
            status = work(chosen, config, outside_of(config, chosen.layout), stop, wake)
        sys.exit(status)
    except locks.LockBusy:
        _LOG.error("another agent works on this state", extra=fields(state=str(chosen.layout.state)))
    except (ConfigInvalid, NotConnected, OSError) as error:
        _LOG.error("the agent cannot work", extra=fields(why=str(error)))
    sys.exit(FAILED)


def work(chosen: Options, config: Config, outside: Dependencies, stop: Event, wake: Event) -> int:
    """Run until `stop`, or until all is done with --once; return the exit status."""
    cleaning.prepare(chosen.layout)
    connected = connect(chosen, wake)
    first_use.warm_up()
    source, publisher = connected.source, connected.publisher
    gpus = GpuWatch(outside.read_gpus, wake, chosen.gpu_seconds)
    fabric = connected.fabric(config.fabric, gpus)
    heartbeat = Heartbeat()
    agent = Reconciler(
        store=PointerStore(chosen.layout),
        source=source,
        images=outside.images(PullSecrets(connected.secrets, config.registries, connected.namespace)),
        gpus=gpus,
        publisher=publisher,
        policy=policy_of(config.verification).current,
        wake=wake,
        heartbeat=heartbeat,
        bounds=config.store,
        capture=config.capture,
        report_ready=fabric.ready,
        serve_revoked=config.verification.when_revoked == "keep",
    )
    _LOG.info("agent starts", extra=fields(node=chosen.node, state=str(chosen.layout.state)))
    with served(chosen, lambda: heartbeat.vitals(listed=source.wait(0), gpus=gpus.wait(0))):
        # GPUs first: they are read in a child process while the source reads what is wanted.
        for part in (gpus, source, publisher):
            part.start()
        _wait_for_gpus(gpus, stop)
        fabric.start()
        try:
            ready = True
            if chosen.once:
                ready = source.wait(SYNC_SECONDS) and agent.settle(stop)
            else:
                agent.run(stop)
            written = publisher.flush(FLUSH_SECONDS)
        finally:
            gpus.stop()
            fabric.stop()
            source.stop()
            publisher.stop(PUBLISHER_SECONDS)
    _LOG.info("agent ends", extra=fields(node=chosen.node))
    return OK if not chosen.once or (ready and written) else NOT_READY


def _wait_for_gpus(gpus: GpuWatch, stop: Event) -> None:
    """Wait for the first reading: without one every cache would be said to wait for the GPUs."""
    while not (gpus.wait(LOOK_SECONDS) or stop.is_set()):
        continue


def outside_of(config: Config, layout: Layout) -> Dependencies:
    """Return the registries of the configuration, and the GPUs of this machine."""
    reader = InventoryReader()

    def read_gpus() -> Inventory:
        inventory = reader.read()
        metrics.gpus_read(inventory)
        return inventory

    return Dependencies(lambda secrets: NodeImages.of(config, layout, secrets), read_gpus)


if __name__ == "__main__":
    main()
