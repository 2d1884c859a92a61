"""The fabric watch: reads this node's fabric again and again, settles the verdict and publishes the report.

A label that flaps moves pods; a label that lags for a minute costs one placement. So the agent reports an improvement
at once, and reports a worse health or another domain only after several readings in a row and for some time. One
reading that agrees with the reported verdict restarts the count. The first reading of a node settles at once, because
there is no earlier verdict to protect.

The neighbors at the other end of the node's Ethernet cables come from lldpd. A node without lldpd reports no neighbors.
"""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Lock, Thread

from gkm.api.fabric_settings import Fabric, SettleThresholds
from gkm.gpus.values import Inventory
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

from gkm_agent.fabric import lldp, sysfs
from gkm_agent.fabric.command import Command, FabricCommandFailed, find
from gkm_agent.fabric.labels import wanted
from gkm_agent.fabric.link_errors import LinkWindow
from gkm_agent.fabric.lldp import Links, NotUnderstood
from gkm_agent.fabric.nvlink import FabricVerdict, Health, fabric_verdict, nvlink_of
from gkm_agent.fabric.report import FabricReport, FabricSink, status_of
from gkm_agent.fabric.survey import SubnetSurvey
from gkm_agent.gpus import NOT_READ
from gkm_agent.report.publisher import Publisher
from gkm_agent.telemetry import metrics

_LOG = logging.getLogger(__name__)
INTERVAL_SECONDS = 60.0
STOP_SECONDS = 5.0
_RANK = {Health.UNHEALTHY: 0, Health.NONE: 1, Health.DEGRADED: 2, Health.HEALTHY: 3}
CANDIDATES = ("/usr/sbin/lldpcli", "/usr/local/sbin/lldpcli", "/usr/bin/lldpcli", "/usr/local/bin/lldpcli")
ARGUMENTS = ("-f", "json0", "show", "neighbors", "details")
SECONDS = 10.0
MAX_BYTES = 8 << 20
"""Size limit of lldpcli's output: 512 interfaces with a few neighbors of a few kB each."""
# lldpcli starts its error messages with the time. With it, each reading would be a change and cause a write per minute.
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", re.ASCII)


class FabricWatch:
    """Three threads: one reads, one publishes, and one surveys on chosen nodes. A hanging one delays no other.

    `labels` returns the labels of this Node, None while it is unknown; `survey_file` is for SubnetSurvey.
    """

    def __init__(
        self,
        settings: Fabric,
        sink: FabricSink,
        node: str,
        inventory: Callable[[], Inventory],
        *,
        survey_file: Path,
        labels: Callable[[], Mapping[str, str] | None] = lambda: None,
        root: Path = sysfs.ROOT,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._inventory = inventory
        self._root = root
        self._interval = interval
        self._clock = clock
        self._neighbors = Neighbors(settings.lldpcli, root)
        self._publisher: Publisher[FabricReport] = Publisher(sink, "fabric")
        self._survey = SubnetSurvey(settings.ibnetdiscover, node, labels, sink, survey_file)
        self._lock = Lock()
        self._ready: Mapping[CacheRef, str] | None = None if settings.cache_labels else {}
        self._settled = SettledVerdict()
        self._links = LinkWindow()
        self._last_inventory: Inventory = NOT_READ
        self._skipped: tuple[str, ...] = ()
        self._wake = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="fabric", daemon=True)

    def start(self) -> None:
        """Start the threads; return at once."""
        for part in (self._publisher, self._survey, self._thread):
            part.start()

    def stop(self) -> None:
        """Stop in bounded time, after the write in progress. The published state stays: a restart keeps it."""
        self._stop.set()
        self._wake.set()
        self._neighbors.cancel()
        self._survey.stop(STOP_SECONDS)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._publisher.stop(STOP_SECONDS)

    def ready(self, caches: Mapping[CacheRef, str]) -> None:
        """Set the caches that are ready on this node, by digest, for the Node labels; cheap if they did not change."""
        with self._lock:
            if not self._settings.cache_labels or self._ready == caches:
                return
            self._ready = dict(caches)
        self._wake.set()

    def read(self) -> FabricReport | None:
        """Read the fabric once, publish the report and return it; None before the first reading of the GPUs."""
        inventory = self._inventory()
        if inventory is NOT_READ:
            return None
        # A reading counts once: only another reading confirms it.
        if inventory is not self._last_inventory:
            self._last_inventory = inventory
            self._settle(inventory)
        verdict = self._settled.reported
        with self._lock:
            ready = self._ready
        ports, links = sysfs.ports(self._root), self._neighbors.read()
        status = status_of(nvlink_of(inventory), verdict, ports, links)
        if verdict is None:
            return None
        report = FabricReport(status, wanted(verdict, ready))
        self._log_skipped(report.labels.skipped)
        # Also an unchanged report: the sink repairs labels that another client changed.
        self._publisher.set(report, force=True)
        return report

    def _settle(self, inventory: Inventory) -> None:
        before = self._settled.reported
        readable = not inventory.unreadable
        reading = fabric_verdict(inventory)
        metrics.link_errors_grew(*self._links.observe(inventory))
        if reading.health is Health.HEALTHY and self._links.fault:
            reading = replace(reading, health=Health.DEGRADED, cause=self._links.fault)
        self._settled = observe(self._settled, reading, self._clock(), self._settings.settle, readable=readable)
        verdict = self._settled.reported
        if verdict is not None and verdict != before:
            _LOG.info(
                "NVLink domain or fabric health of this node changed",
                extra=fields(domain=verdict.domain or None, health=verdict.health.value, why=verdict.cause or None),
            )

    def _log_skipped(self, skipped: tuple[str, ...]) -> None:
        if skipped != self._skipped:
            self._skipped = skipped
            if skipped:
                _LOG.warning(
                    "invalid or surplus labels not set on this Node",
                    extra=fields(count=len(skipped), why=list(skipped[:20])),
                )

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                report = self.read()
            except Exception:  # noqa: BLE001 -- a surprise from a driver must not end the thread
                _LOG.exception(
                    "fabric of this node not evaluated because of a defect, published state kept, tried again"
                )
                report = None
            # Before the first reading of the GPUs, that reading is near.
            self._wake.wait(self._interval if report is not None else min(self._interval, 5.0))


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """The last reported verdict, None before the first, and the number of readings in a row that contradict it.

    `since` is the time of the first such reading, in monotonic seconds.
    """

    reported: FabricVerdict | None = None
    contradictions: int = 0
    since: float = 0.0


def observe(
    settled: SettledVerdict, reading: FabricVerdict, now: float, rule: SettleThresholds, *, readable: bool = True
) -> SettledVerdict:
    """Return the settled verdict after one more reading at `now` (monotonic seconds).

    A first reading that failed (not `readable`) does not settle at once: it must last, like any worse health.
    """
    reported = settled.reported
    if (reported is None and readable) or (reported is not None and not _must_last(reported, reading)):
        return SettledVerdict(reading)
    count = settled.contradictions + 1
    since = settled.since if settled.contradictions else now
    if count >= rule.readings and now - since >= rule.seconds:
        return SettledVerdict(reading)
    return replace(settled, contradictions=count, since=since)


def _must_last(reported: FabricVerdict, reading: FabricVerdict) -> bool:
    """Return whether a reading is worse than the reported verdict, or names another domain or GPU model."""
    return (
        _RANK[reading.health] < _RANK[reported.health]
        or bool(reported.domain and reading.domain != reported.domain)
        or bool(reported.flavor and reading.flavor != reported.flavor)
    )


@dataclass(slots=True)
class Neighbors:
    """Runs lldpcli: the configured program, else one at its usual paths. `options` precede the query."""

    configured: str = ""
    root: Path = sysfs.ROOT
    options: Sequence[str] = ()
    _command: Command | None = field(default=None, init=False)

    def read(self) -> Links:
        """Run lldpcli and return the neighbors; a failure is returned as a problem, never raised."""
        if self._command is None:
            program = find(self.configured, CANDIDATES)
            if program is None:
                missing = (f"fabric.lldpcli: {self.configured} is not there",) if self.configured else ()
                return Links(problems=missing)
            self._command = Command((program, *self.options, *ARGUMENTS), SECONDS, MAX_BYTES)
        try:
            output = self._command.run().output
            return lldp.decode(output, self._is_hardware(), sysfs.addresses(self.root))
        except (FabricCommandFailed, NotUnderstood) as error:
            return Links(problems=(_TIMESTAMP.sub("", str(error)),))

    def _is_hardware(self) -> Callable[[str], bool | None]:
        # An eth0 of the pod hides that of the node; a pod has no port of an adapter.
        return partial(sysfs.is_hardware, root=self.root) if sysfs.has_hardware(self.root) else lambda _: None

    def cancel(self) -> None:
        """End a run of lldpcli that another thread waits for."""
        if self._command is not None:
            self._command.cancel()
