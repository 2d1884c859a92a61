"""How many examples a property test has, and which: GKM_HYPOTHESIS is quick, full or random.

`quick` runs a fifth of the examples, in each change. `full` runs all of them. Both run the same examples each time, so
that a change is judged by what it changed. `random` looks for new ones.
"""

import os

from hypothesis import HealthCheck, settings

DEFAULT = 100
"""What hypothesis runs for a test that names no number."""
_DIVISOR = {"quick": 5, "full": 1, "random": 1}


def profile() -> str:
    """Return the chosen profile.

    Raises:
        ValueError: the variable names none.
    """
    name = os.environ.get("GKM_HYPOTHESIS") or "quick"
    if name not in _DIVISOR:
        raise ValueError(f"GKM_HYPOTHESIS={name}: the profiles are {', '.join(_DIVISOR)}")
    return name


def examples(number: int) -> int:
    """Return how many of a test's `number` examples the chosen profile runs: at least one."""
    return -(-number // _DIVISOR[profile()])


def load_profile() -> None:
    """Let hypothesis run by the chosen profile. No test depends on time: a busy machine takes longer for an example."""
    timeless = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("quick", timeless, derandomize=True, max_examples=examples(DEFAULT))
    settings.register_profile("full", timeless, derandomize=True, max_examples=DEFAULT)
    settings.register_profile("random", timeless, max_examples=10 * DEFAULT)
    settings.load_profile(profile())
