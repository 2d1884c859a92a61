"""Report in the status of a run whether its pods are on their planned nodes. Pure."""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from gkm.api.runs import RunPods

from gkm_operator.plans.state.objects import RunKey


class FollowReason(StrEnum):
    """Reasons of the condition Followed of a Run (docs/reference/reasons.md)."""

    FOLLOWED = "PodsWherePlanned"
    WAITING = "PodsWaiting"
    UNSCHEDULABLE = "PodsUnschedulable"
    DIVERGED = "PodsDiverged"


class PodsReport(NamedTuple):
    """Numbers of a Run's pods by state, and the reason and message of its condition Followed."""

    counts: RunPods
    reason: FollowReason
    message: str


PodsReports = Callable[[RunKey], PodsReport | None]
"""Returns the report about a run's pods, None if it has no pods."""


def no_reports(_run: RunKey) -> PodsReport | None:
    """Return no report, because pods have no gates."""
    return None
