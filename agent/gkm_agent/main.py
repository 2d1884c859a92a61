"""The command gkm-agent: puts the parts together, runs them, ends in bounded time."""

import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from gkm.api import config as configuration
from gkm.api.config import Config, ConfigInvalid
from gkm.gpus.inventory import Reader
from gkm.gpus.values import Inventory
from gkm.hoststate import locks
from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.logs import start as start_logs

from gkm_agent import cleaning, logs, options
from gkm_agent.agent import Agent
from gkm_agent.checks import policy_of
from gkm_agent.desk import Desk
from gkm_agent.gpu_watch import GpuWatch
from gkm_agent.images import CacheImages, RegistryImages
from gkm_agent.options import Options
from gkm_agent.publisher import Publisher
from gkm_agent.sink import StatusSink
from gkm_agent.source import CacheSource
from gkm_agent.static_sink import StaticSink
from gkm_agent.static_source import StaticSource

OK, FAILED, NOT_READY = 0, 1, 3
FLUSH_SECONDS = 10.0
SYNC_SECONDS = 30.0


class NotConnected(Exception):
    """There is neither a cluster nor a directory to take wishes from."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What lies outside this process: registries, and the GPUs."""

    images: CacheImages
    read_gpus: Callable[[], Inventory]


def main(arguments: list[str] | None = None) -> None:
    """Run the agent; the exit status is 0, 1 (it cannot work), 2 (used wrongly) or 3 (--once: not all is Ready)."""
    chosen = options.parse(arguments)
    start_logs(chosen.log_level)
    stop, wake = Event(), Event()

    def end(*_: object) -> None:
        stop.set()
        wake.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        config = read_config(chosen.config)
        with_lock = chosen.layout.state / "locks" / "agent"
        with_lock.parent.mkdir(parents=True, exist_ok=True)
        with locks.exclusive(with_lock):
            status = work(chosen, config, Outside(RegistryImages(config, chosen.layout), Reader().read), stop, wake)
        sys.exit(status)
    except locks.Busy:
        logs.event("another agent works on this state", level=logging.ERROR, state=str(chosen.layout.state))
    except (ConfigInvalid, NotConnected, OSError) as error:
        logs.event("the agent cannot work", level=logging.ERROR, why=str(error))
    sys.exit(FAILED)


def work(chosen: Options, config: Config, outside: Outside, stop: Event, wake: Event) -> int:
    """Run until `stop`, or until all is done with --once; return the exit status."""
    cleaning.prepare(chosen.layout)
    source, sink = source_and_sink(chosen, wake)
    gpus = GpuWatch(outside.read_gpus, wake, chosen.gpu_seconds)
    publisher = Publisher(sink)
    agent = Agent(
        desk=Desk(chosen.layout),
        source=source,
        images=outside.images,
        gpus=gpus,
        publisher=publisher,
        policy=policy_of(config.verification),
        wake=wake,
    )
    logs.event("agent starts", node=chosen.node, state=str(chosen.layout.state))
    for part in (source, gpus, publisher):
        part.start()
    try:
        ready = True
        if chosen.once:
            ready = source.wait(SYNC_SECONDS) and agent.settle(stop)
        else:
            agent.run(stop)
        written = publisher.flush(FLUSH_SECONDS)
    finally:
        gpus.stop()
        source.stop()
        publisher.stop(FLUSH_SECONDS)
    logs.event("agent ends", node=chosen.node)
    return OK if not chosen.once or (ready and written) else NOT_READY


def source_and_sink(chosen: Options, wake: Event) -> tuple[CacheSource, StatusSink]:
    """Return where wishes come from and where status goes."""
    if chosen.static is not None:
        return StaticSource(chosen.static, wake), StaticSink(chosen.status, chosen.node)
    # The official client is the heaviest import of all, and without Kubernetes nobody needs it.
    from gkm.kube.client import NotConfigured, connect  # noqa: PLC0415

    from gkm_agent.kube_sink import KubeSink  # noqa: PLC0415
    from gkm_agent.kube_source import KubeSource  # noqa: PLC0415

    try:
        api = connect(str(chosen.kubeconfig) if chosen.kubeconfig else None)
    except NotConfigured as error:
        raise NotConnected(f"{error}; without Kubernetes use --static DIR") from error
    source = KubeSource(api, chosen.node, wake)
    return source, KubeSink(api, chosen.node, lambda: source.node)


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
