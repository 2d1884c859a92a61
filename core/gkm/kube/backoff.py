"""How long to wait before the next try: doubling, capped, jittered. A value; what waits is elsewhere."""

import random
from dataclasses import dataclass

_LARGEST_EXPONENT = 30
_SPREAD = 1.5


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds: `first`, twice that, … at most `cap`; each between half of it and the whole of it.

    Half stays fixed so that a retry never follows at once, the other half is random so that many do not come together.
    """

    first: float = 0.5
    cap: float = 30.0

    def pause(self, failures: int, at_least: float = 0.0) -> float:
        """Return the pause after this many failures in a row; `at_least` is what the server asked for.

        A server that is overrun asks everybody for the same: what it asked for is spread as well, by half at most.
        """
        whole = min(self.cap, self.first * 2.0 ** min(max(failures, 1) - 1, _LARGEST_EXPONENT))
        ours, asked = whole * random.uniform(0.5, 1.0), at_least * random.uniform(1.0, _SPREAD)  # noqa: S311 -- spreads load, hides nothing
        return max(ours, asked)
