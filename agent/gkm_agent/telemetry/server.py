"""Serving health and metrics for as long as the agent works."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gkm.hoststate.logs import fields
from gkm.probes.server import PageServer

from gkm_agent.options import Options
from gkm_agent.telemetry import health, metrics
from gkm_agent.telemetry.csi_metrics import CsiMetrics
from gkm_agent.telemetry.health import Vitals

_LOG = logging.getLogger(__name__)


@contextmanager
def served(chosen: Options, vitals: Callable[[], Vitals]) -> Iterator[None]:
    """Serve where that is asked for; a run that ends by itself (--once) has nobody to ask it.

    Raises:
        OSError: nothing can listen there.
    """
    if chosen.health is None or chosen.once:
        yield
        return
    csi = CsiMetrics(chosen.layout)
    metrics.REGISTRY.register(csi)
    server = PageServer(chosen.health, health.pages(vitals, metrics.page))
    try:
        _start(server, chosen.health)
        _LOG.info("health is served", extra=fields(port=server.port))
        yield
    finally:
        server.close()
        metrics.REGISTRY.unregister(csi)


def _start(server: PageServer, address: tuple[str, int]) -> None:
    try:
        server.start()
    except OSError as error:
        host, port = address
        raise OSError(error.errno, f"--health {host}:{port}: cannot listen there ({error.strerror})") from error
