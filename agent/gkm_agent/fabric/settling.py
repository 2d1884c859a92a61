"""Flap suppression for the fabric verdict. Pure: the caller passes the time.

A label that flaps moves pods; a label that lags for a minute costs one placement. So the agent reports an improvement
at once, and reports a worse health or another domain only after several readings in a row and for some time. One
reading that agrees with the reported verdict restarts the count. The first reading of a node settles at once, because
there is no earlier verdict to protect.
"""

from dataclasses import dataclass, replace

from gkm.api.fabric_settings import SettleThresholds

from gkm_agent.fabric.nvlink import FabricVerdict, Health

_RANK = {Health.UNHEALTHY: 0, Health.NONE: 1, Health.DEGRADED: 2, Health.HEALTHY: 3}


@dataclass(frozen=True, slots=True)
class SettledVerdict:
    """The reported verdict (None before the first), the count of readings that contradict it, and their start.

    `since` is in monotonic seconds.
    """

    reported: FabricVerdict | None = None
    contradictions: int = 0
    since: float = 0.0


def observe(
    settled: SettledVerdict, reading: FabricVerdict, now: float, rule: SettleThresholds, *, readable: bool = True
) -> SettledVerdict:
    """Return the settled verdict after a reading at `now`.

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
