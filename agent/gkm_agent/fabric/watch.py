"""The part of the agent that watches this node's fabric: reads again and again, settles, and has it written."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread

from gkm.api.fabric_settings import Fabric
from gkm.gpus.values import Inventory
from gkm.hoststate.logs import fields
from gkm.hoststate.names import CacheRef

from gkm_agent.fabric import sysfs
from gkm_agent.fabric.labels import wanted
from gkm_agent.fabric.neighbours import Neighbours
from gkm_agent.fabric.nvlink import fabric_verdict, nvlink_of
from gkm_agent.fabric.report import FabricReport, status_of
from gkm_agent.fabric.settling import SettledVerdict, observe
from gkm_agent.fabric.sink import FabricSink
from gkm_agent.fabric.survey import SubnetSurvey
from gkm_agent.fabric.writer import FabricWriter
from gkm_agent.gpus import NOT_READ

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class FabricInputs:
    """Which node this is, what is read on it, and where its labels are known (None: there is no Node)."""

    node: str
    inventory: Callable[[], Inventory]
    labels: Callable[[], Mapping[str, str] | None] = lambda: None
    sysfs: Path = sysfs.ROOT


class FabricWatch:
    """Three threads: reading, writing, and on chosen nodes the survey; a hanging one holds up no other."""

    def __init__(
        self,
        settings: Fabric,
        place: FabricInputs,
        sink: FabricSink,
        *,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._place = place
        self._interval = interval
        self._clock = clock
        self._neighbours = Neighbours(settings.lldpcli, place.sysfs)
        self._writer = FabricWriter(sink)
        self._survey = SubnetSurvey(settings.ibnetdiscover, place.node, place.labels, sink)
        self._lock = Lock()
        self._ready: Mapping[CacheRef, str] | None = None if settings.cache_labels else {}
        self._settled = SettledVerdict()
        self._seen: Inventory = NOT_READ
        self._skipped: tuple[str, ...] = ()
        self._wake = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="fabric", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        for part in (self._writer, self._survey, self._thread):
            part.start()

    def stop(self) -> None:
        """End in bounded time, with what is being written now. What was written stays: a restart is no change."""
        self._stop.set()
        self._wake.set()
        self._neighbours.cancel()
        self._survey.stop(STOP_SECONDS)
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._writer.stop(STOP_SECONDS)

    def wake(self) -> None:
        """Read now: the GPUs or the Node have changed."""
        self._wake.set()

    def ready(self, caches: Mapping[CacheRef, str]) -> None:
        """Say which caches are ready on this node, with their digests; cheap where nothing changed."""
        with self._lock:
            if not self._settings.cache_labels or self._ready == caches:
                return
            self._ready = dict(caches)
        self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Wait until what was read last is written; return whether it is."""
        return self._writer.flush(timeout)

    def read(self) -> FabricReport | None:
        """Read once and hand it on; return it, None while the GPUs have not been read yet."""
        inventory = self._place.inventory()
        if inventory is NOT_READ:
            return None
        # A reading that was counted is not counted again: only another one confirms it.
        if inventory is not self._seen:
            self._seen = inventory
            self._settle(inventory)
        told = self._settled.reported
        with self._lock:
            ready = self._ready
        status = status_of(nvlink_of(inventory), told, sysfs.ports(self._place.sysfs), self._neighbours.read())
        if told is None:
            return None
        report = FabricReport(status, wanted(told, ready))
        self._log_skipped(report.labels.skipped)
        self._writer.set(report)
        return report

    def _settle(self, inventory: Inventory) -> None:
        before = self._settled.reported
        readable = not inventory.unreadable
        reading = fabric_verdict(inventory)
        self._settled = observe(self._settled, reading, self._clock(), self._settings.settle, readable=readable)
        told = self._settled.reported
        if told is not None and told != before:
            _LOG.info(
                "fabric", extra=fields(domain=told.domain or None, health=told.health.value, why=told.why or None)
            )

    def _log_skipped(self, skipped: tuple[str, ...]) -> None:
        if skipped != self._skipped:
            self._skipped = skipped
            if skipped:
                _LOG.warning("labels left out", extra=fields(count=len(skipped), why=list(skipped[:20])))

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                found = self.read()
            except Exception:  # noqa: BLE001 -- whatever a driver says must not end the watching
                _LOG.exception("the fabric cannot be read")
                found = None
            # Before the first reading, that of the GPUs is near.
            self._wake.wait(self._interval if found is not None else min(self._interval, 5.0))
