"""The command gkm-agent: puts the parts together, runs them, ends in bounded time."""

import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from gkm.api import config as configuration
from gkm.api import first_use
from gkm.api.config import Config, ConfigInvalid
from gkm.gpus.inventory import Reader
from gkm.gpus.values import Inventory
from gkm.hoststate import locks
from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import start as start_logs
from gkm.images.registries.pull_secrets import PullSecrets

from gkm_agent import cleaning, logs, metrics, options
from gkm_agent.agent import Agent
from gkm_agent.checks import policy_of
from gkm_agent.connected import NotConnected, connect
from gkm_agent.desk import Desk
from gkm_agent.gpu_watch import GpuWatch
from gkm_agent.health import Pulse
from gkm_agent.images import CacheImages, RegistryImages
from gkm_agent.options import Options
from gkm_agent.serving import served

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
class Outside:
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
        config = read_config(chosen.config)
        with locks.only(chosen.layout.state / "locks" / "agent"):
            status = work(chosen, config, outside_of(config, chosen.layout), stop, wake)
        sys.exit(status)
    except locks.Busy:
        logs.event("another agent works on this state", level=logging.ERROR, state=str(chosen.layout.state))
    except (ConfigInvalid, NotConnected, OSError) as error:
        logs.event("the agent cannot work", level=logging.ERROR, why=str(error))
    sys.exit(FAILED)


def work(chosen: Options, config: Config, outside: Outside, stop: Event, wake: Event) -> int:
    """Run until `stop`, or until all is done with --once; return the exit status."""
    cleaning.prepare(chosen.layout)
    connected = connect(chosen, wake)
    first_use.make_ready()
    source, publisher = connected.source, connected.publisher
    gpus = GpuWatch(outside.read_gpus, wake, chosen.gpu_seconds)
    fabric = connected.fabric(config.fabric, gpus)
    pulse = Pulse()
    agent = Agent(
        desk=Desk(chosen.layout),
        source=source,
        images=outside.images(PullSecrets(connected.secrets, config.registries, connected.namespace)),
        gpus=gpus,
        publisher=publisher,
        policy=policy_of(config.verification).now,
        wake=wake,
        pulse=pulse,
        bounds=config.store,
        capture=config.capture,
        tell_ready=fabric.ready,
        keeps=config.verification.when_revoked == "keep",
    )
    logs.event("agent starts", node=chosen.node, state=str(chosen.layout.state))
    with served(chosen, lambda: pulse.vitals(listed=source.wait(0), gpus=gpus.wait(0))):
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
    logs.event("agent ends", node=chosen.node)
    return OK if not chosen.once or (ready and written) else NOT_READY


def _wait_for_gpus(gpus: GpuWatch, stop: Event) -> None:
    """Wait for the first reading: without one every cache would be said to wait for the GPUs."""
    while not (gpus.wait(LOOK_SECONDS) or stop.is_set()):
        continue


def outside_of(config: Config, layout: Layout) -> Outside:
    """Return the registries of the configuration, and the GPUs of this machine."""
    reader = Reader()

    def read_gpus() -> Inventory:
        inventory = reader.read()
        metrics.gpus_read(inventory)
        return inventory

    return Outside(lambda secrets: RegistryImages.of(config, layout, secrets), read_gpus)


def read_config(path: Path | None) -> Config:
    """Return the configuration; without a file it is the default, which refuses everything unsigned.

    Raises:
        ConfigInvalid: the file cannot be used; the message names it.
    """
    if path is None:
        return Config()
    try:
        # A mounted ConfigMap's files are links.
        return configuration.parse(read_bounded(path.resolve()))
    except FileNotFoundError as error:
        raise ConfigInvalid(f"configuration {path}: there is no such file") from error
    except (UnreadableState, ConfigInvalid) as error:
        raise ConfigInvalid(f"configuration {path}: {error}") from error


if __name__ == "__main__":
    main()
