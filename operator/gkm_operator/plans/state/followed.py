"""Whether the pods of a run are where its plan says, as the status of the run reports it. Pure."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from gkm.api.runs import RunPods

from gkm_operator.plans.state.objects import RunKey


class FollowReason(StrEnum):
    """Reasons of the condition Followed (docs/reference/reasons.md)."""

    FOLLOWED = "PodsWherePlanned"
    WAITING = "PodsWaiting"
    DIVERGED = "PodsDiverged"


class PodsReport(NamedTuple):
    """The pods of a run, counted; the reason of its condition Followed, and a message with the first cause."""

    counts: RunPods
    reason: FollowReason
    message: str


PodsReports = Callable[[RunKey], PodsReport | None]
"""Returns the report of a run, None without pods."""


def no_reports(_run: RunKey) -> PodsReport | None:
    """Return no report: pods have no gates here."""
    return None
