"""What a series of readings says: GPUs that all vanish at once are away, not gone, until that has lasted. Pure.

A driver that is restarted or upgraded takes all its GPUs along and answers in between with errors, or with nothing at
all (its library is replaced too). To believe "no GPU" then would make every cache Incompatible for minutes.
"""

from msgspec.structs import replace

from gkm.api.grammar import agree, count_of
from gkm.gpus.values import Fault, Gpu, Inventory, printable

GONE_SECONDS = 300.0
"""How long vanished GPUs are waited for: an upgrade by NVIDIA's GPU operator unloads, installs and loads in minutes."""
AWAY = "NOT_READY"


class Steadiness:
    """Remembers the GPUs that were seen last, by backend."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Gpu, ...]] = {}
        self._away_since: float | None = None

    def settled(self, reading: Inventory, now: float) -> Inventory:
        """Return a reading in which GPUs that are away are still named, each with the reason; `now` in seconds.

        Such a reading is unreadable unless a GPU of another vendor is well. After GONE_SECONDS a reading stands as it
        is: without GPUs and without errors it then means what it says.
        """
        present = {gpu.backend for gpu in reading.gpus}
        away = [backend for backend in self._seen if backend not in present]
        if not away and not reading.unreadable:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = now
        if not away or not self.waits(now):
            self._seen = {backend: _of(reading, backend) for backend in sorted(present)}
            return reading
        settled = _with_away([gpu for backend in away for gpu in self._seen[backend]], reading)
        self._seen |= {backend: _of(settled, backend) for backend in present}
        return settled

    def waits(self, now: float) -> bool:
        """Return whether GPUs are away, and not yet for so long that they are gone."""
        return self._away_since is not None and now - self._away_since < GONE_SECONDS


def _of(reading: Inventory, backend: str) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in reading.gpus if gpu.backend == backend)


def _with_away(away: list[Gpu], reading: Inventory) -> Inventory:
    errors = reading.errors or (
        f"{count_of(len(away), 'GPU')} {agree(len(away), 'was', 'were')} here before and not any more",
    )
    fault = Fault("reading", AWAY, printable(errors[0], 200))
    lost = tuple(replace(gpu, arch="", power_state="", fabric=None, faults=(fault,)) for gpu in away)
    # A vendor whose predecessor is away was counted from 0 again (gkm.gpus.vendor).
    first = max(gpu.index for gpu in away) + 1
    taken = {gpu.index for gpu in away}
    shift = first if any(gpu.index in taken for gpu in reading.gpus) else 0
    others = tuple(replace(gpu, index=gpu.index + shift) for gpu in reading.gpus)
    return Inventory(tuple(sorted(lost + others, key=lambda gpu: gpu.index)), errors)
