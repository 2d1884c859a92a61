"""The HTTP server for health and metrics, and the metrics of the CSI process.

The CSI process has no server: it writes its counters to a file, and the agent reads this file for each scrape. The file
comes from another container, so an invalid file is refused as a whole, with one warning.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, product

from gkm.hoststate import counters
from gkm.hoststate.counters import BUCKET_BOUNDS, EndedLayers, PublishHistograms
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from gkm.probes.server import PageServer
from gkm.runtimes import BY_NAME
from gkm.runtimes.keys import MissReason
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from gkm_agent.options import Options
from gkm_agent.telemetry import health, metrics
from gkm_agent.telemetry.health import Vitals

_LOG = logging.getLogger(__name__)
_LABELS = (*(str(bound) for bound in BUCKET_BOUNDS), "+Inf")


@contextmanager
def served(options: Options, vitals: Callable[[], Vitals]) -> Iterator[None]:
    """Serve health and metrics during the block at the address in the options; not without an address or with --once.

    Raises:
        OSError: the server cannot listen on the address.
    """
    if options.health is None or options.once:
        yield
        return
    csi = CsiMetrics(options.layout)
    metrics.REGISTRY.register(csi)
    metrics.READY.labels(metrics.PROGRAM).set_function(lambda: not health.readiness_problems(vitals()))
    server = PageServer(options.health, health.pages(vitals, metrics.page))
    try:
        _start(server, options.health)
        _LOG.info("health server started", extra=fields(port=server.port))
        yield
    finally:
        server.close()
        metrics.REGISTRY.unregister(csi)
        metrics.READY.clear()


def _start(server: PageServer, address: tuple[str, int]) -> None:
    try:
        server.start()
    except OSError as error:
        host, port = address
        raise OSError(error.errno, f"--health {host}:{port}: cannot listen there ({error.strerror})") from error


def publish_seconds(publishes: PublishHistograms) -> HistogramMetricFamily:
    """Return gkm_publish_seconds as a Prometheus histogram with cumulative buckets."""
    family = HistogramMetricFamily(
        "gkm_publish_seconds", "Time that the CSI process took to publish a volume.", labels=["code"]
    )
    for code, histogram in sorted(publishes.items()):
        buckets = list(zip(_LABELS, map(float, accumulate(histogram.counts)), strict=True))
        family.add_metric([code], buckets, histogram.seconds)
    return family


def private_layers(layers: EndedLayers) -> Iterator[CounterMetricFamily]:
    """Yield the counters of private layers at unmount: layers that the pod did not write to, and the others."""
    volumes = CounterMetricFamily(
        "gkm_private_layers",
        "Volumes with a cache and a private layer that ended, by whether the program wrote into the layer.",
        labels=["wrote"],
    )
    volumes.add_metric(["no"], layers.empty)
    volumes.add_metric(["yes"], layers.written)
    yield volumes
    yield CounterMetricFamily(
        "gkm_private_layer_bytes",
        "Bytes that programs left in these layers: kernels that the caches lacked, and what else they wrote.",
        layers.written_bytes,
    )


def without_cache(volumes: int) -> CounterMetricFamily:
    """Return the counter of volumes that started without a cache, gkm_volumes_without_cache_total."""
    return CounterMetricFamily(
        "gkm_volumes_without_cache",
        "Volumes that started without a cache and ended, into which the program wrote: it compiled all kernels.",
        volumes,
    )


def kernel_misses(counted: Mapping[str, Mapping[MissReason, int]]) -> CounterMetricFamily:
    """Return gkm_kernel_misses_total with every reason.

    Prometheus sees no increase in a counter that begins with 1, so each counter exists from 0 on.
    """
    family = CounterMetricFamily(
        "gkm_kernel_misses",
        "Kernels and graphs that programs compiled although a cache was mounted, of volumes that ended.",
        labels=["runtime", "reason"],
    )
    for runtime, reason in product(BY_NAME, MissReason):
        family.add_metric([runtime, reason.value], counted.get(runtime, {}).get(reason, 0))
    return family


class CsiMetrics(Collector):
    """Exposes the counters of this node's CSI driver as metrics."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last_error = ""

    def collect(self) -> Iterator[HistogramMetricFamily | CounterMetricFamily]:
        """Yield the current metrics; no metrics without a CSI driver, or while its counters file is invalid."""
        try:
            counted = counters.load(self._layout)
        except (OSError, UnreadableState) as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _LOG.warning(
                    "counters file of the CSI driver unreadable, its metrics are left out",
                    extra=fields(why=self._last_error),
                )
            return
        self._last_error = ""
        yield publish_seconds(counted.publishes)
        yield from private_layers(counted.layers)
        yield without_cache(counted.without_cache)
        yield kernel_misses(counted.kernel_misses)
