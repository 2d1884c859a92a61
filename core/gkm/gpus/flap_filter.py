"""Filter a series of readings: GPUs that all vanish at once are missing, not removed, for five minutes. Pure.

A driver that is restarted or upgraded takes all its GPUs along and answers meanwhile with errors, or not at all (its
library is replaced too). A reading of "no GPU" would make every cache Incompatible for minutes.
"""

from msgspec.structs import replace

from gkm.api.grammar import agree, count_of
from gkm.gpus.values import Fault, Gpu, Inventory, printable

MISSING_SECONDS = 300.0
"""Seconds for which vanished GPUs are reported as missing; NVIDIA's GPU operator replaces a driver within minutes."""
NOT_READY = "NOT_READY"


class FlapFilter:
    """Remembers the GPUs of the last good reading, for each backend."""

    def __init__(self) -> None:
        self._last_gpus: dict[str, tuple[Gpu, ...]] = {}
        self._missing_since: float | None = None

    def filtered(self, reading: Inventory, now: float) -> Inventory:
        """Return the reading with GPUs that vanished less than MISSING_SECONDS ago; each has the cause as its fault.

        Such a reading is unreadable unless a GPU of another vendor is healthy. After MISSING_SECONDS a reading is
        returned as it is: without GPUs and without errors it then means a machine without GPUs.
        """
        present = {gpu.backend for gpu in reading.gpus}
        missing = [backend for backend in self._last_gpus if backend not in present]
        if not missing and not reading.unreadable:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        if not missing or not self.has_missing_gpus(now):
            self._last_gpus = {backend: _of_backend(reading, backend) for backend in sorted(present)}
            return reading
        filtered = _with_missing([gpu for backend in missing for gpu in self._last_gpus[backend]], reading)
        self._last_gpus |= {backend: _of_backend(filtered, backend) for backend in present}
        return filtered

    def has_missing_gpus(self, now: float) -> bool:
        """Return whether GPUs vanished less than MISSING_SECONDS ago."""
        return self._missing_since is not None and now - self._missing_since < MISSING_SECONDS


def _of_backend(reading: Inventory, backend: str) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in reading.gpus if gpu.backend == backend)


def _with_missing(missing: list[Gpu], reading: Inventory) -> Inventory:
    errors = reading.errors or (
        f"{count_of(len(missing), 'GPU')} {agree(len(missing), 'has', 'have')} vanished since the last reading",
    )
    fault = Fault("reading", NOT_READY, printable(errors[0], 200))
    missing_gpus = tuple(replace(gpu, arch="", fabric=None, links=(), faults=(fault,)) for gpu in missing)
    # Without the vendor before it, a vendor's indices start at 0 again (gkm.gpus.probe).
    first = max(gpu.index for gpu in missing) + 1
    used = {gpu.index for gpu in missing}
    shift = first if any(gpu.index in used for gpu in reading.gpus) else 0
    others = tuple(replace(gpu, index=gpu.index + shift) for gpu in reading.gpus)
    return Inventory(tuple(sorted(missing_gpus + others, key=lambda gpu: gpu.index)), errors)
