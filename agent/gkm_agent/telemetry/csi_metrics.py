"""What the CSI process counted, read from the file it writes whenever somebody asks for the metrics.

That file comes from another container: what is not as it must be is refused whole, and said once.
"""

import logging
from collections.abc import Iterator
from itertools import accumulate

from gkm.hoststate import counters
from gkm.hoststate.counters import BUCKET_BOUNDS, PublishHistograms
from gkm.hoststate.files import UnreadableState
from gkm.hoststate.layout import Layout
from gkm.hoststate.logs import fields
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

_LOG = logging.getLogger(__name__)


_LABELS = (*(str(bound) for bound in BUCKET_BOUNDS), "+Inf")


def publish_seconds(publishes: PublishHistograms) -> HistogramMetricFamily:
    """Return gkm_publish_seconds; Prometheus' buckets hold what is below them as well."""
    family = HistogramMetricFamily(
        "gkm_publish_seconds", "Time that the CSI process took to publish a volume.", labels=["code"]
    )
    for code, histogram in sorted(publishes.items()):
        buckets = list(zip(_LABELS, map(float, accumulate(histogram.counts)), strict=True))
        family.add_metric([code], buckets, histogram.seconds)
    return family


class CsiMetrics(Collector):
    """The metrics of the CSI process of this node."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._complaint = ""

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Return what is counted now; nothing while there is no CSI process, or its file cannot be used."""
        try:
            found = counters.load(self._layout)
        except UnreadableState as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _LOG.warning("counters of the CSI process refused", extra=fields(why=self._complaint))
            return
        self._complaint = ""
        yield publish_seconds(found)
