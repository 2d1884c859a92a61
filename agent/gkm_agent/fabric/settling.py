"""Against flapping: what is bad must last before it is told, what is good is told at once. Pure, with a clock given.

A label that flaps moves pods; one that lags for a minute costs one placement. So a change for the worse, or to another
domain, must be seen in several readings in a row and for some time, and whatever was settled coming back in between
starts that anew. The first reading of a node is settled at once: there is nothing yet to hold on to.
"""

from dataclasses import dataclass, replace

from gkm.api.fabric_settings import SettleThresholds

from gkm_agent.fabric.nvlink import FabricVerdict, Health

_RANK = {Health.UNHEALTHY: 0, Health.NONE: 1, Health.DEGRADED: 2, Health.HEALTHY: 3}


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """What is told (None: nothing yet), and how often and since when readings (monotonic seconds) have contradicted."""

    reported: FabricVerdict | None = None
    contradictions: int = 0
    since: float = 0.0


def observe(
    settled: SettledVerdict, reading: FabricVerdict, now: float, rule: SettleThresholds, *, readable: bool = True
) -> SettledVerdict:
    """Return what is settled after a reading at `now`.

    A first reading that failed (not `readable`) is no reading: it must last, like any bad news.
    """
    told = settled.reported
    if (told is None and readable) or (told is not None and not _must_last(told, reading)):
        return SettledVerdict(reading)
    count = settled.contradictions + 1
    since = settled.since if settled.contradictions else now
    if count >= rule.readings and now - since >= rule.seconds:
        return SettledVerdict(reading)
    return replace(settled, contradictions=count, since=since)


def _must_last(told: FabricVerdict, reading: FabricVerdict) -> bool:
    """Return whether a reading says something worse, or of another domain or model, than what is told."""
    return (
        _RANK[reading.health] < _RANK[told.health]
        or bool(told.domain and reading.domain != told.domain)
        or bool(told.flavour and reading.flavour != told.flavour)
    )
