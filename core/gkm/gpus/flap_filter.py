"""What a series of readings says: GPUs that all vanish at once are away, not gone, until that has lasted. Pure.

A driver that is restarted or upgraded takes all its GPUs along and answers in between with errors, or with nothing at
all (its library is replaced too). To believe "no GPU" then would make every cache Incompatible for minutes.
"""

from msgspec.structs import replace

from gkm.api.grammar import agree, count_of
from gkm.gpus.values import Fault, Gpu, Inventory, printable

MISSING_SECONDS = 300.0
"""How long vanished GPUs are waited for: an upgrade by NVIDIA's GPU operator unloads, installs and loads in minutes."""
NOT_READY = "NOT_READY"


class FlapFilter:
    """Remembers the GPUs that were seen last, by backend."""

    def __init__(self) -> None:
        self._last_gpus: dict[str, tuple[Gpu, ...]] = {}
        self._missing_since: float | None = None

    def filtered(self, reading: Inventory, now: float) -> Inventory:
        """Return a reading in which GPUs that are away are still named, each with the reason; `now` in seconds.

        Such a reading is unreadable unless a GPU of another vendor is well. After GONE_SECONDS a reading stands as it
        is: without GPUs and without errors it then means what it says.
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
        """Return whether GPUs are away, and not yet for so long that they are gone."""
        return self._missing_since is not None and now - self._missing_since < MISSING_SECONDS


def _of_backend(reading: Inventory, backend: str) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in reading.gpus if gpu.backend == backend)


def _with_missing(missing: list[Gpu], reading: Inventory) -> Inventory:
    errors = reading.errors or (
        f"{count_of(len(missing), 'GPU')} {agree(len(missing), 'was', 'were')} here before and not any more",
    )
    fault = Fault("reading", NOT_READY, printable(errors[0], 200))
    missing_gpus = tuple(replace(gpu, arch="", power_state="", fabric=None, faults=(fault,)) for gpu in missing)
    # A vendor whose predecessor is away was counted from 0 again (gkm.gpus.vendor).
    first = max(gpu.index for gpu in missing) + 1
    used = {gpu.index for gpu in missing}
    shift = first if any(gpu.index in used for gpu in reading.gpus) else 0
    others = tuple(replace(gpu, index=gpu.index + shift) for gpu in reading.gpus)
    return Inventory(tuple(sorted(missing_gpus + others, key=lambda gpu: gpu.index)), errors)
