"""How long to wait before the next try: doubling, capped, jittered. A value; what waits is elsewhere."""

import random
from dataclasses import dataclass

_LARGEST_EXPONENT = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds: `first`, twice that, … at most `cap`; each between half of it and the whole of it.

    Half stays fixed so that a retry never follows at once, the other half is random so that many do not come together.
    """

    first: float = 0.5
    cap: float = 30.0

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        """Return the pause after this many failures in a row; `at_least` is what the server asked for."""
        whole = min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _LARGEST_EXPONENT))
        return max(at_least, whole * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads load, hides nothing
