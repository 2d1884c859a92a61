"""The GPU watch: reads the GPUs of the node on an interval, and holds the last reading."""

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread

from gkm.gpus.flap_filter import FlapFilter
from gkm.gpus.values import Inventory
from gkm.hoststate.logs import fields

_LOG = logging.getLogger(__name__)


INTERVAL_SECONDS = 60.0
MISSING_GPU_SECONDS = 10.0
"""Interval of readings in seconds while GPUs are missing. A restart of a driver takes a few intervals."""
NOT_READ = Inventory(errors=("they have not been read yet",))
"""The inventory before the first reading; it is not equal to the inventory of a node without GPUs."""


class GpuWatch:
    """Reads the GPUs in its own thread, because a hanging driver must not block the agent."""

    def __init__(
        self,
        read: Callable[[], Inventory],
        changed: Event,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._changed = changed
        self._interval = interval
        self._clock = clock
        self._filter = FlapFilter()
        self._lock = Lock()
        self._inventory = NOT_READ
        self._first = Event()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="gpus", daemon=True)

    @property
    def inventory(self) -> Inventory:
        """Return the inventory of the last reading."""
        with self._lock:
            return self._inventory

    @property
    def pause(self) -> float:
        """Return the seconds until the next reading; the pause is shorter while GPUs are missing."""
        missing = self._filter.has_missing_gpus(self._clock())
        return min(MISSING_GPU_SECONDS, self._interval) if missing else self._interval

    def refresh(self) -> None:
        """Read the GPUs now; the reader limits the time. A reading that raises is an unreadable one."""
        try:
            reading = self._read()
        except Exception as error:  # noqa: BLE001 -- the thread must survive, and the last state would look current
            _LOG.exception("GPUs of this node not read because of a defect, tried again")
            reading = Inventory(errors=(f"GPUs cannot be read: {type(error).__name__}",))
        inventory = self._filter.filtered(reading, self._clock())
        with self._lock:
            before, self._inventory = self._inventory, inventory
        if before.comparable != inventory.comparable:
            _LOG.log(
                logging.WARNING if inventory.errors else logging.INFO,
                "GPUs of this node changed",
                extra=fields(
                    gpus=len(inventory.gpus),
                    driver=inventory.driver_version or None,
                    errors=list(inventory.errors) or None,
                    unusable=[gpu.index for gpu in inventory.gpus if gpu.fatal_fault] or None,
                ),
            )
            self._changed.set()

    def start(self) -> None:
        """Start to read on the interval; return at once."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the first reading; return whether it is done."""
        return self._first.wait(seconds)

    def stop(self) -> None:
        """Stop reading; a reading in progress ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        self.refresh()
        self._first.set()
        while not self._stop.wait(self.pause):
            self.refresh()
