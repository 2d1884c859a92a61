"""The observed state of one reconcile pass, and the plans that claim the same GPUs. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gkm_operator.plans.state.free_capacity import Reservations, reserved_for
from gkm_operator.plans.state.node_loss import NodeIndex
from gkm_operator.plans.state.objects import RunKey, WatchedRun
from gkm_operator.plans.state.plan_index import PlanRecord
from gkm_operator.plans.state.pod_usage import PodUsage


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Runs, the plans of each by number, and nodes with the GPUs that their pods use.

    `unread` are Runs that exist and cannot be read: their plans count. `version` changes with nodes and pods.
    """

    now: datetime
    runs: Sequence[WatchedRun]
    unread: frozenset[RunKey]
    plans: Mapping[RunKey, Sequence[PlanRecord]]
    pods: PodUsage
    nodes: NodeIndex
    version: int

    def current(self, run: WatchedRun) -> PlanRecord | None:
        """Return the newest plan of a run; plans of an earlier Run of its name do not count."""
        own = [plan for plan in self.plans.get(run.key, ()) if plan.owner == run.metadata.uid]
        return max(own, key=lambda plan: plan.number, default=None)

    def live(self) -> dict[RunKey, tuple[PlanRecord, int]]:
        """Return the plans that have not expired, each with the priority of its run."""
        found = {}
        for run in self.runs:
            plan = self.current(run)
            if plan is not None and run.metadata.deletion_timestamp is None and not plan.expired(self.now):
                found[run.key] = plan, run.spec.priority
        for key in self.unread - found.keys():
            plans = self.plans.get(key, ())
            if plans and not plans[-1].expired(self.now):
                found[key] = plans[-1], 0
        return found

    def reserved(self, live: Mapping[RunKey, tuple[PlanRecord, int]]) -> Reservations:
        """Return the GPUs that live plans reserve."""
        return Reservations({key: reserved_for(plan.claims, self.pods.of(key)) for key, (plan, _) in live.items()})

    def running(self, live: Mapping[RunKey, tuple[PlanRecord, int]]) -> frozenset[RunKey]:
        """Return the runs whose pods use all GPUs of their plan."""
        return frozenset(
            key
            for key, (plan, _) in live.items()
            if key in self.pods.runs and not reserved_for(plan.claims, self.pods.of(key))
        )


def double_allocations(
    live: Mapping[RunKey, tuple[PlanRecord, int]], totals: Mapping[str, int], running: Collection[RunKey] = frozenset()
) -> dict[RunKey, str]:
    """Return the runs whose plans claim GPUs that plans of other runs claim too, with a message each.

    Of two runs, the one that is `running` wins, then the one with the higher priority, then the one with the older
    plan: users with the right to delete plans could restore a superseded one. `totals` are the GPUs of each node.
    """
    order = sorted(
        live.items(), key=lambda item: (item[0] not in running, -item[1][1], item[1][0].created or "~", item[0])
    )
    free = dict(totals)
    claimed: set[str] = set()
    found = {}
    for run, (plan, _) in order:
        over = [node for node, gpus in sorted(plan.claims.items()) if node in claimed and gpus > free.get(node, gpus)]
        if over:
            # The message names no run: it may be of a namespace that users of this one must not see.
            found[run] = f"another run has GPUs of node {over[0]} too"
            continue
        for node, gpus in plan.claims.items():
            if node in free:
                free[node] -= gpus
                claimed.add(node)
    return found
