"""What is written into the status of plans: on change only, and a few in one sweep."""

from collections.abc import Iterable

from gkm_operator.plans.plan_status import wanted
from gkm_operator.plans.planning.assessment import RunAssessment
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.snapshot import ClusterSnapshot
from gkm_operator.plans.write.writer import PlanWriter

MadeByRun = dict[str, PlanRecord]
"""Plans by the uid of their run."""
MAX_WRITES = 50
"""Statuses of plans, in one sweep: nothing waits for them."""


def report(
    writer: PlanWriter, cases: Iterable[RunAssessment], snapshot: ClusterSnapshot, made: MadeByRun, now: str
) -> bool:
    """Write the status of the plans in a snapshot; return whether all say what they should.

    `made` has the plans that were made since the snapshot was taken. A plan that no watch has shown yet is left to a
    later sweep. After a write that failed no other is tried.

    Raises:
        NotLeading: nothing must be written any more.
    """
    left = MAX_WRITES
    for case in cases:
        current = made.get(case.uid, case.plan)
        if current is None or case.run.metadata.deletion_timestamp is not None:
            continue
        for plan in snapshot.plans.get(case.run.key, ()):
            if plan.owner != case.uid or not plan.version:
                continue
            new = wanted(plan, current, now, over=case.over)
            if new == plan.status or writer.said(plan):
                continue
            if not left:
                return False
            left -= 1
            if not writer.say_of(plan, new):
                return False
    return True
